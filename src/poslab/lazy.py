"""torch, loaded at its first use.

Position schemes are settings before they are mathematics: a command line is checked against them, and `--help` is
answered, without the seconds that importing torch takes. Scheme files therefore say `from poslab.lazy import torch`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _LazyModule("torch")
