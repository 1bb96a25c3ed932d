"""Memory beyond the window: a decoder that carries something from one segment of a text to the next.

segment: the tokens that one pass computes, at most the model's context_length. memory: what is left of those before.

    decoder.py     MemoryGPT, and `decoder_of`, which makes it or a plain GPT
    segments.py    segment recurrence: the memory of each layer, and what it sees of it
    retrieval.py   one layer that looks up earlier tokens by what they hold
    cache.py       reading token by token what is otherwise read segment by segment
"""

from poslab.model.memory.decoder import MemoryGPT, decoder_of, with_memory
from poslab.model.memory.retrieval import Retrieval, RetrievedAttention
from poslab.model.memory.segments import Memory

__all__ = ["Memory", "MemoryGPT", "Retrieval", "RetrievedAttention", "decoder_of", "with_memory"]
