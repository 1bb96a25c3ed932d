"""Equivalent of a scheme in the transformers library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poslab.lazy import Tensor


@dataclass(frozen=True, eq=False)
class HFEquivalent:
    """Architecture of transformers by its model_type, "gpt2" or "gpt_neox", and what the scheme puts into it.

    settings: of its configuration, beside the sizes of the model. weights: by their names there.
    """

    model_type: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)
