"""Training: `train` makes a run folder out of a checked configuration."""

import sys
from types import ModuleType

# tensorboard looks for this module of its own to know that it is to do without TensorFlow. Otherwise, where that is
# installed, it loads it only to write files: four seconds, and lines on the screen. Lightning imports tensorboard.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))

from poslab.training.run import train  # noqa: E402

__all__ = ["train"]
