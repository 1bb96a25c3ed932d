"""poslab: GPT-style transformers that differ only in their positional encoding, trained and compared under control.

Importing the package is cheap: torch is loaded when something that needs it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poslab.evaluation.arrays import attention_maps, bias_by_distance, losses_by_position
    from poslab.model.decoder import GPT
    from poslab.runs.checkpoint import load

__all__ = ["GPT", "__version__", "attention_maps", "bias_by_distance", "load", "losses_by_position"]
__version__ = "0.1.0"

_PUBLIC = {
    "GPT": "model.decoder",
    "load": "runs.checkpoint",
    **dict.fromkeys(("attention_maps", "bias_by_distance", "losses_by_position"), "evaluation.arrays"),
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"poslab.{_PUBLIC[name]}"), name)
    try:
        return importlib.import_module(f"poslab.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"poslab.{name}":
            raise
        raise AttributeError(f"module 'poslab' has no attribute {name!r}") from None
