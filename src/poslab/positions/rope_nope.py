"""Rotary positions, and none at all in every k-th layer, which sees the whole text; the others may see a window.

Llama 4 (Meta 2025: none in every 4th layer) and SmolLM3 (Bakouch et al. 2025: the same, without a window); studied by
Yang et al. 2025, "Rope to Nope and Back Again: A New Hybrid Attention Strategy".

    layer every, 2 every, ... (from 1 on):   score[i, j] = q_i . k_j / sqrt(Dh)         for all j <= i
    all other layers:                        RoPE's score                               for i - window < j <= i

Deviations from Llama 4: its layers with positions see chunks of the text, these the last `window` tokens (as in Yang et
al. 2025); it normalises queries and keys, and grows the queries of layers without positions by the logarithm of their
position, which are no parts of a position scheme's hybrid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, Tables
from poslab.positions.rope import RoPE


@dataclass(frozen=True)
class RoPENoPE(RoPE):
    """RoPE in some layers; beside RoPE's settings every, the k of "every k-th layer"; window, null for none."""

    every: int = 4
    window: int | None = 64

    variants = ({"every": 2, "window": 7}, {"every": 3, "window": None})

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(2, every=self.every)
        require_at_least(1, window=self.window)

    def warnings(self, shape: ModelShape) -> list[str]:
        found = super().warnings(shape)
        if self.every > shape.num_layers:
            found.append(f"pos.every={self.every}: with {shape.num_layers} layers, all have positions")
        if self.window is not None and self.window >= shape.context_length:
            found.append(f"pos.window={self.window} hides nothing within a context of {shape.context_length}")
        return found

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        return self.rotate(tables, q, positions) if self._turns(layer) else q

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor) -> Tensor:
        return self.rotate(tables, k, positions) if self._turns(layer) else k

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        if self.window is None or not self._turns(layer):
            return None
        return RelativeTerms(0, 0, window=self.window)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        if not self._turns(text.layer):
            return PositionScheme.reference_score(self, tables, text, i, j)
        seen = self.window is None or abs(i - j) < self.window  # so many tokens, whatever their positions
        score = super().reference_score(tables, text, i, j)
        return score if seen else score - math.inf

    def _turns(self, layer: int) -> bool:
        """Return whether this layer, counted from 0, has positions."""
        return (layer + 1) % self.every != 0
