"""What the decoder is made of: a block, its attention with all that it may attend to, its MLP; the vectors of tokens; initial weights."""

from poslab.layers.block import Asked, Attention, Block
from poslab.layers.embedding import TokenEmbedding
from poslab.layers.initial import initialise

__all__ = ["Asked", "Attention", "Block", "TokenEmbedding", "initialise"]
