"""torch, loaded at its first use.

Position schemes are settings before they are mathematics: a command line is checked against them, and `--help` is
answered, without the seconds that importing torch takes. Scheme files therefore say `from poslab.lazy import torch`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        vars(self).update(vars(module))  # later look-ups don't come here any more
        return getattr(module, name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _LazyModule("torch")
