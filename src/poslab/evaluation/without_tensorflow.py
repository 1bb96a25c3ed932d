"""Imported before tensorboard, for its effect: tensorboard then does without TensorFlow.

It looks for this module of its own to know. Otherwise, where TensorFlow is installed, it loads it only to read and
write files: four seconds, and lines on the screen.
"""

import sys
from types import ModuleType

sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
