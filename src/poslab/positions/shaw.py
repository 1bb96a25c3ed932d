"""Relative position representations, clipped at K (Shaw, Uszkoreit, Vaswani 2018, equations 3 to 5).

    score[i, j] = q_i . (k_j + a_K[clip(i - j)]) / sqrt(Dh)          a_K, a_V: one row per distance
    out[i]      = sum_j w[i, j] (v_j + a_V[clip(i - j)])

The paper counts distances as j - i and clips them to [-K, K]. Here they are i - j, so row r = clip(i - j, -K, K) + K,
which renames the rows. A causal decoder never sees j > i, so it has the K + 1 rows of distances 0..K alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.pictures import Curves, Explanation, Matrix, Picture, Strip

_NORMS = (
    "How long the vector is that belongs to each distance: the longer, the more that distance can change. The last "
    "one stands for all that is farther. Surprising: a long vector in the middle, or layers that agree."
)
_ROWS = (
    "Which row of the tables a distance looks up: one each up to the clip, then one for all. Beyond it the order of "
    "the keys is unknown to attention, and for the same reason any length of text can be read."
)
_SIMILARITY = (
    "1 on the diagonal, where a row meets itself. Rows begin at random, so a block of colour beside the diagonal is "
    "learned: neighbouring distances came to mean alike. Surprising: far rows alike and near ones not."
)


def never_trained(max_distance: int, last_row: int, shape: ModelShape) -> list[str]:
    """Return a warning where tables by distance have rows up to `last_row` that no distance of the context reaches."""
    last = shape.context_length - 1
    reach = f"pos.max_distance={max_distance}: a context of {shape.context_length} has distances up to {last}"
    return [f"{reach}, so the rows for {last + 1} to {last_row} never train"] if last_row > last else []


@dataclass(frozen=True)
class Shaw(PositionScheme):
    """Shaw's keys and values; max_distance: the paper's K. Tables are per layer and shared by heads, as there."""

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
        return never_trained(self.max_distance, self.max_distance, shape)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        rows = self.max_distance + 1 if shape.causal else 2 * self.max_distance + 1
        axes = [] if self.share_layers else [shape.num_layers]
        axes += [] if self.share_heads else [shape.num_heads]
        names = [name for name, on in (("keys", self.keys), ("values", self.values)) if on]
        bound = (6 / (rows + shape.head_dim)) ** 0.5  # Xavier's, of each (R, Dh) matrix by itself
        return {name: torch.empty(*axes, rows, shape.head_dim).uniform_(-bound, bound) for name in names}

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        chosen: Any = tables if self.share_layers else {name: table[layer] for name, table in tables.items()}
        return RelativeTerms(0 if shape.causal else -self.max_distance, self.max_distance, **chosen)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        score = super().reference_score(tables, text, i, j)
        if not self.keys:
            return score
        table = tables["keys"] if self.share_layers else tables["keys"][text.layer]
        table = table if self.share_heads else table[text.head]
        distance = max(-self.max_distance, min(text.positions[i] - text.positions[j], self.max_distance))
        relative_key = table[distance if text.shape.causal else distance + self.max_distance]
        return score + text.q[i] @ relative_key / text.shape.head_dim**0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        distances = list(range(0 if shape.causal else -self.max_distance, self.max_distance + 1))
        pictures: dict[str, Picture] = {}
        for name, table in tables.items():
            norms = table.float().norm(dim=-1)  # ([L], [H], R)
            norms = norms if self.share_heads else norms.mean(-2)
            lines = {"all layers": norms} if self.share_layers else {f"layer {i}": n for i, n in enumerate(norms)}
            title = f"Norm of the {name} table"
            pictures[f"{name}_norm"] = Curves(title, "distance", "L2 norm", distances, lines, _NORMS)
        return pictures

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        lowest = 0 if shape.causal else -self.max_distance
        rows = [min(max(d, -self.max_distance), self.max_distance) - lowest for d in shape.distances]
        found: dict[str, Explanation] = {"rows": Strip("Clipped rows", "row", list(shape.distances), rows, _ROWS)}
        for name, table in tables.items():
            unit = torch.nn.functional.normalize(table.float(), dim=-1)
            similarity = (unit @ unit.mT).reshape(-1, unit.shape[-2], unit.shape[-2]).mean(0)  # (R, R)
            title = f"Cosine similarity of the {name} table's rows, mean of the layers"
            found[f"{name}_similarity"] = Matrix(title, "row", "row", similarity, _SIMILARITY)
        return found
