"""Training: `train` makes a run folder out of a checked configuration."""

import poslab.evaluation.without_tensorflow  # noqa: F401  # before Lightning, which imports tensorboard
from poslab.training.run import train

__all__ = ["train"]
