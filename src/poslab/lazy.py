"""What takes long to import, and when that happens. To import this module takes no time, and has the effect.

torch: at its first use. Position schemes are settings before they are mathematics: a command line is checked against
them, and `--help` is answered, without the seconds that importing torch takes. Scheme files therefore say
`from poslab.lazy import Tensor, torch`, of which Tensor is for annotations alone.

torchmetrics, of which Lightning needs two classes: without its metrics, until somebody asks for one. They would load
transformers and scipy's signal processing where these are installed, a second in all.

TensorFlow: not at all. tensorboard looks for a module of its own to know that it is to do without; otherwise it loads
TensorFlow, where that is installed, only to read and write files: four seconds, and lines on the screen.
"""

import logging
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


_PARTS = {"Metric": "metric", "MetricCollection": "collections", "__version__": "__about__"}


class _Torchmetrics(ModuleType):
    """The package before its `__init__`, which loads all of it, and runs for any name but these."""

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS:
            try:
                import_module("torchmetrics.utilities")  # first: the parts need it, and it needs one of them
                return getattr(import_module(f"torchmetrics.{_PARTS[name]}"), name)
            except (ImportError, AttributeError):  # another version's
                pass
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:
    torch = _LazyModule("torch")
    Tensor = "Tensor"

sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
if "torchmetrics" not in sys.modules and (_spec := find_spec("torchmetrics")):
    _package = module_from_spec(_spec)
    vars(_package)["_logger"] = logging.getLogger("torchmetrics")  # which its parts take from it
    _package.__class__ = _Torchmetrics
    sys.modules["torchmetrics"] = _package
