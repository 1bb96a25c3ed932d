"""Disentangled attention: content to position, and position to content (DeBERTa, He et al. 2021, section 3.1).

    score[i, j] = (q_i . k_j + q_i . K_h[delta] + Q_h[delta] . k_j) / sqrt(3 Dh)

    delta(i, j) = 0 for i - j <= -max_distance, 2 max_distance - 1 for i - j >= max_distance, else i - j + max_distance

Three products, so the paper divides by sqrt(3 Dh). In position to content, its equations 2 to 4 write delta(j, i), the
row of the distance seen from the key; its authors' code looks up delta(i, j), the row that content to position uses,
and transformers does the same. Here it is delta(i, j): what was trained, and what checkpoints mean.

Deviations: K_h and Q_h are learned as they are, for each layer and head, where the paper projects one embedding of
2 max_distance rows, shared by the layers, with matrices of each layer; after projection it is the same. The absolute
positions that DeBERTa adds before its last layers, for masked words, are left out. max_distance is 512 in the paper.

In a causal decoder the max_distance rows of the future never train: they stay so that tables are those of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import HeadInputs, ModelShape, Picture, PositionScheme, RelativeTerms, Tables
from poslab.positions.pictures import curves_of
from poslab.positions.shaw import never_trained

_NORM = (
    "How long the vector is that belongs to each distance: the longer, the more that distance can change. All begin "
    "alike; the last one stands for all that is farther. Surprising: near distances that have not grown."
)


@dataclass(frozen=True)
class DeBERTa(PositionScheme):
    """DeBERTa's scores; max_distance: the paper's k, distances differ from -max_distance to max_distance - 1."""

    max_distance: int = 64

    variants = ({"max_distance": 3}, {"max_distance": 1})

    def __post_init__(self) -> None:
        require_at_least(1, max_distance=self.max_distance)

    def warnings(self, shape: ModelShape) -> list[str]:
        return never_trained(self.max_distance, self.max_distance - 1, shape)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        size = (shape.num_layers, shape.num_heads, 2 * self.max_distance, shape.head_dim)
        return {name: torch.randn(size) * 0.02 for name in ("position_keys", "position_queries")}

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        return q * 3**-0.5

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        keys, queries = tables["position_keys"][layer], tables["position_queries"][layer] * 3**-0.5  # (H, R, Dh)
        return RelativeTerms(-self.max_distance, self.max_distance - 1, keys=keys, queries=queries)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        distance, k = text.positions[i] - text.positions[j], self.max_distance
        delta = 0 if distance <= -k else 2 * k - 1 if distance >= k else distance + k
        content_to_position = text.q[i] @ tables["position_keys"][text.layer, text.head, delta]
        position_to_content = tables["position_queries"][text.layer, text.head, delta] @ text.k[j]
        return (text.q[i] @ text.k[j] + content_to_position + position_to_content) / (3 * text.shape.head_dim) ** 0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        first = 0 if shape.causal else -self.max_distance
        distances = list(range(first, self.max_distance))
        pictures: dict[str, Picture] = {}
        for name, table in tables.items():
            norms = table.float().norm(dim=-1).mean(1)[:, first + self.max_distance :]  # (L, R)
            title = f"Norm of the {name.replace('_', ' ')}, mean of the heads"
            pictures[f"{name}_norm"] = curves_of("layer", title, "distance", "L2 norm", norms, _NORM, distances)
        return pictures
