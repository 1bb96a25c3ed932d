"""Sandwich: a bias by distance, the inner product of two sinusoidal positions (Chi et al. 2023, section 5).

    score[i, j] = q_i . k_j / sqrt(Dh) + (p_i . p_j - d / 2) / (8 h / H)          h = 1 .. H

    p_i . p_j = sum over m of cos((i - j) / 10000^(2 m / d))          m = 0 .. d / 2 - 1,  d = dimensions

Nothing is learned. m counts from 0 as in the authors' code (appendix E) and not from 1 as in the text; d / 2, the inner
product at distance 0, is subtracted as in the text, which no softmax notices. Both sides of a query have the same bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.alibi import fixed_bias
from poslab.positions.base import Explanation, HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables


@dataclass(frozen=True)
class Sandwich(PositionScheme):
    """Sandwich; dimensions: of the sinusoidal positions, the paper's d, unrelated to the model's sizes."""

    dimensions: int = 128
    share_layers = True
    variants = ({"dimensions": 6},)

    def __post_init__(self) -> None:
        if self.dimensions < 2 or self.dimensions % 2:
            raise SettingError("dimensions", self.dimensions, "must be even and at least 2: a sine and a cosine each")

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        # In float64, which terms may be whatever the model's precision is.
        pair = torch.arange(self.dimensions // 2, dtype=torch.float64)
        distance = torch.arange(distances.start, distances.stop, dtype=torch.float64)
        angle = distance[:, None] * 10000 ** (-2 * pair / self.dimensions)  # (R, d / 2)
        product = angle.cos().sum(-1) - self.dimensions / 2  # (R,)
        compression = torch.arange(1, shape.num_heads + 1, dtype=torch.float64) * 8 / shape.num_heads  # (H,)
        return RelativeTerms(distances[0], distances[-1], bias=product / compression[:, None])  # (H, R)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        def position(n: int) -> list[float]:
            angles = [n / 10000 ** (2 * m / self.dimensions) for m in range(self.dimensions // 2)]
            return [*map(math.sin, angles), *map(math.cos, angles)]

        here, there = position(text.positions[i]), position(text.positions[j])
        product = sum(a * b for a, b in zip(here, there, strict=True))
        bias = (product - self.dimensions / 2) / ((text.head + 1) * 8 / text.shape.num_heads)
        return super().reference_score(tables, text, i, j) + bias

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        return {"bias": fixed_bias(self.relative(tables, shape, 0, shape.distances), shape)}
