"""Training: the Lightning module, what runs beside it, and `train`, which puts everything together."""

from poslab.training.run import train

__all__ = ["train"]
