"""What the decoder is made of: vectors of tokens; a block, its attention and all that it sees, its MLP; the start."""

from poslab.model.block import Asked, Attention, Block
from poslab.model.embedding import TokenEmbedding
from poslab.model.init import initialise

__all__ = ["Asked", "Attention", "Block", "TokenEmbedding", "initialise"]
