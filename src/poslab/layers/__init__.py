"""What the decoder is made of: a block, its attention with all that it may attend to, its MLP."""

from poslab.layers.block import Asked, Attention, Block

__all__ = ["Asked", "Attention", "Block"]
