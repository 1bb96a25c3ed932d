"""Relative position representations, clipped at K (Shaw, Uszkoreit, Vaswani 2018, equations 3 to 5).

    score[i, j] = q_i . (k_j + a_K[clip(i - j)]) / sqrt(Dh)          a_K, a_V: one row per distance
    out[i]      = sum_j w[i, j] (v_j + a_V[clip(i - j)])

The paper counts distances as j - i and clips them to [-K, K]. Here they are i - j, so row r = clip(i - j, -K, K) + K,
which renames the rows. A causal decoder never sees j > i, so it has K + 1 rows, distances 0..K: the K rows of the
future would never train.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch
from poslab.positions.base import Curves, ModelShape, OneHead, Picture, PositionScheme, RelativeTerms

if TYPE_CHECKING:
    from torch import Tensor

    from poslab.positions.base import Tables


@dataclass(frozen=True)
class Shaw(PositionScheme):
    """max_distance is the paper's K. As in the paper, tables are per layer and shared by the heads."""

    max_distance: int = 16
    keys: bool = True
    values: bool = True
    share_layers: bool = False
    share_heads: bool = True
    variants = ({"max_distance": 3, "values": False, "share_heads": False}, {"keys": False, "share_layers": True})

    def __post_init__(self) -> None:
        require_at_least(1, max_distance=self.max_distance)
        if not (self.keys or self.values):
            raise SettingError("keys", False, "keys and values can't both be off, nothing would be left")

    def warnings(self, shape: ModelShape) -> list[str]:
        last = shape.context_length - 1
        if self.max_distance <= last:
            return []
        return [
            f"pos.max_distance={self.max_distance}: a context of {shape.context_length} has distances up to {last}, so "
            f"the rows for {last + 1} to {self.max_distance} never train"
        ]

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        rows = self.max_distance + 1 if shape.causal else 2 * self.max_distance + 1
        axes = [] if self.share_layers else [shape.num_layers]
        axes += [] if self.share_heads else [shape.num_heads]
        names = [name for name, on in (("keys", self.keys), ("values", self.values)) if on]
        return {name: _xavier(*axes, rows, shape.head_dim) for name in names}  # ([L], [H], R, Dh)

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        chosen: dict[str, Any] = {
            name: table if self.share_layers else table[layer] for name, table in tables.items()
        }  # ([H], R, Dh)
        return RelativeTerms(0 if shape.causal else -self.max_distance, self.max_distance, **chosen)

    def score(self, tables: Tables, shape: ModelShape, layer: int, head: int, text: OneHead, i: int, j: int) -> Tensor:
        score = super().score(tables, shape, layer, head, text, i, j)
        if not self.keys:
            return score
        table = tables["keys"] if self.share_layers else tables["keys"][layer]
        table = table if self.share_heads else table[head]
        distance = max(-self.max_distance, min(text.positions[i] - text.positions[j], self.max_distance))
        relative_key = table[distance if shape.causal else distance + self.max_distance]
        return score + text.q[i] @ relative_key / shape.head_dim**0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        distances = list(range(0 if shape.causal else -self.max_distance, self.max_distance + 1))
        pictures: dict[str, Picture] = {}
        for name, table in tables.items():
            norms = table.float().norm(dim=-1)  # ([L], [H], R)
            norms = norms if self.share_heads else norms.mean(-2)
            lines = {"all layers": norms} if self.share_layers else {f"layer {i}": n for i, n in enumerate(norms)}
            pictures[f"{name}_norm"] = Curves(f"Norm of the {name} table", "distance", "L2 norm", distances, lines)
        return pictures


def _xavier(*shape: int) -> Tensor:
    """Xavier uniform for each (R, Dh) matrix by itself, whatever is stacked in front of it."""
    bound = (6 / (shape[-2] + shape[-1])) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound)
