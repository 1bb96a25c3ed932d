"""Memory beyond the window: what a model carries from one segment of a text to the next.

segment: the tokens that one pass computes, at most the model's context_length. memory: what is left of those before.
"""

from poslab.model.memory.segments import LayerMemory, Memory, Segment

__all__ = ["LayerMemory", "Memory", "Segment"]
