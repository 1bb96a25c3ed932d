"""Imports that take long, made late or not at all; importing this module takes no time.

torch: at its first use. Position schemes are settings before they are mathematics: a command line is checked against
them, and `--help` is answered, without the seconds that importing torch takes. Scheme files therefore say
`from poslab.lazy import Tensor, torch`, of which Tensor is for annotations alone.

TensorFlow: not at all, from the import of this module on. tensorboard looks for a module of its own to know that it is
to do without; otherwise it loads TensorFlow, where that is installed, only to read and write files: four seconds, and
lines on the screen.
"""

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:
    torch = _LazyModule("torch")
    Tensor = "Tensor"

sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def import_training() -> ModuleType:
    """Import poslab.training.train, without looking for garbage: half a million objects come to stay, and to look among
    them takes a quarter of the time."""
    gc.disable()
    module = import_module("poslab.training.train")
    gc.freeze()  # nor is there any garbage among them later
    gc.enable()
    return module
