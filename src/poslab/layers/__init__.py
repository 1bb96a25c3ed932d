"""What the decoder is made of: vectors of tokens; a block, its attention and all that it sees, its MLP; the start."""

from poslab.layers.block import Asked, Attention, Block
from poslab.layers.embedding import TokenEmbedding
from poslab.layers.initial import initialise

__all__ = ["Asked", "Attention", "Block", "TokenEmbedding", "initialise"]
