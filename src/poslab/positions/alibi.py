"""ALiBi: a bias that falls with distance, steeper for some heads (Press, Smith, Lewis 2022, section 3).

    score[i, j] = q_i . k_j / sqrt(Dh) - slope_h |i - j|          h = 1 .. H

For H = 2^a heads the slopes are 2^(-8 h / H). For any other number they are what the authors' code takes, as does
BLOOM: the slopes of the power of two P below it, then the first, third, ... of those of 2 P heads. Nothing is learned.

The paper is about causal models; where a query sees the future, the bias falls alike to both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.pictures import Curves, Explanation, curves_of


def slopes(num_heads: int) -> list[float]:
    """Return the slope of each head."""
    power = 1 << (num_heads.bit_length() - 1)  # the largest power of two that is no more than num_heads
    own, finer = ([2.0 ** (-8 * (h + 1) / count) for h in range(count)] for count in (power, 2 * power))
    return own + finer[::2][: num_heads - power]


_BIAS = (
    "What each head adds to the score of a key so far back; 1 less makes its weight 2.7 times smaller. Nothing is "
    "learned: steep heads see the last words only, flat ones most of the text. Surprising: a steep head that "
    "measured attention below shows looking far all the same."
)


def fixed_bias(terms: RelativeTerms, shape: ModelShape) -> Curves:
    """Return the picture of a fixed bias by distance, one line per head."""
    assert terms.bias is not None
    return curves_of("head", "Bias by distance", "distance", "bias", terms.bias, _BIAS, shape.distances)


@dataclass(frozen=True)
class ALiBi(PositionScheme):
    """ALiBi with the paper's slopes; no settings."""

    share_layers = True

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        # In float64, which terms may be whatever the model's precision is.
        slope = torch.tensor(slopes(shape.num_heads), dtype=torch.float64)
        distance = torch.arange(distances.start, distances.stop).abs()
        linear = distances[0] >= 0  # else it falls to both sides
        return RelativeTerms(distances[0], distances[-1], bias=-slope[:, None] * distance, linear=linear)  # (H, R)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        content = super().reference_score(tables, text, i, j)
        power = max(2**a for a in range(32) if 2**a <= text.shape.num_heads)
        exponent = 8 * (text.head + 1) / power if text.head < power else 4 * (2 * (text.head - power) + 1) / power
        return content - abs(text.positions[i] - text.positions[j]) / 2**exponent

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        return {"bias": fixed_bias(self.relative(tables, shape, 0, shape.distances), shape)}
