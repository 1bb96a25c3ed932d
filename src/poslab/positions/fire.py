"""FIRE: a small network of the distance, as a share of how far the query can look back (Li et al. 2024, section 3).

    psi(x)      = log(|c x| + 1)
    r[i, j]     = psi(i - j) / psi(max(L, i))          L = |threshold| * init_threshold
    score[i, j] = q_i . k_j / sqrt(Dh) + output[h] . relu(hidden r[i, j] + hidden_bias) + output_bias[h]

c and threshold are learned per layer, as are the network's weights, which begin as those of torch's Linear do: all as
in the paper's code (appendix), which counts positions from 0 and adds 1e-6 to the denominator. Up to position L the
score knows the distance alone. The paper is causal; where a query sees the future, distances are |i - j|.

A network of one number with one hidden layer is a line on each of the `width` + 1 pieces between the places where a
unit starts or stops: every pair looks up the slope and the intercept of its piece, whatever the width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import HeadInputs, ModelShape, Picture, PositionScheme, ScoreTile, Tables
from poslab.positions.pictures import curves_of

EPSILON = 1e-6

_BIAS = (
    "What each head adds to the score of a key so far back, for a query at the end of the context; for one in a text "
    "twice as long, the same line is stretched to fit. 1 less makes a weight 2.7 times smaller. Surprising: a line "
    "that rises with distance, or bends where the text is not special."
)


@dataclass(frozen=True)
class FIRE(PositionScheme):
    """FIRE; width: hidden units. init_c, init_threshold: initial c and L, the latter a quarter of the default context.

    The paper's L is a quarter of its context, too: 512 of 2,048.
    """

    width: int = 32
    init_c: float = 0.1
    init_threshold: float = 64.0

    shift_invariant = False
    additive = True
    variants = ({"init_threshold": 4.0}, {"width": 3, "init_c": 1.0})

    def __post_init__(self) -> None:
        require_at_least(1, width=self.width)
        for option, value in (("init_c", self.init_c), ("init_threshold", self.init_threshold)):
            if not 0 < value < math.inf:
                raise SettingError(option, value, "must be a finite number above 0")

    def warnings(self, shape: ModelShape) -> list[str]:
        text = f"pos.init_threshold={self.init_threshold:g}: no query of a context of {shape.context_length} stands "
        text += "beyond it, so that in training scores know the distance alone"
        return [text] if shape.context_length - 1 <= self.init_threshold else []

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        layers, bound = shape.num_layers, self.width**-0.5
        return {
            "hidden": torch.empty(layers, self.width).uniform_(-1, 1),
            "hidden_bias": torch.empty(layers, self.width).uniform_(-1, 1),
            "output": torch.empty(layers, shape.num_heads, self.width).uniform_(-bound, bound),
            "output_bias": torch.empty(layers, shape.num_heads).uniform_(-bound, bound),
            "c": torch.full((layers,), self.init_c),
            "threshold": torch.ones(layers),
        }

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        of_layer = {name: table[layer].to(tile.scores.dtype) for name, table in tables.items()}
        return tile.scores + self._bias(of_layer, tile.i, tile.j)

    def _bias(self, of_layer: Tables, i: Tensor, j: Tensor) -> Tensor:
        """Return the bias (B, H, m, n) of positions i (B, 1, m, 1) and j (B, 1, 1, n), by the tables of one layer."""
        c, dtype = of_layer["c"], of_layer["c"].dtype
        reach = torch.maximum(i.to(dtype), (of_layer["threshold"] * self.init_threshold).abs())
        ratio = (c * (i - j).to(dtype)).abs().log1p() / ((c * reach).abs().log1p() + EPSILON)  # (B, 1, m, n)
        ends, *lines = _pieces(of_layer)
        piece = torch.bucketize(ratio.detach(), ends).expand(-1, len(of_layer["output"]), -1, -1)  # (B, H, m, n)
        # Each query looks up lines of its own, so that gradients are sums of sums, which lose fewer digits than one.
        of_queries = (*piece.shape[:-1], -1)
        slope, intercept = (line[:, None].expand(of_queries).gather(-1, piece) for line in lines)
        return torch.addcmul(intercept, slope, ratio)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        c, limit = tables["c"][text.layer], tables["threshold"][text.layer].abs() * self.init_threshold
        query_position, distance = text.positions[i], abs(text.positions[i] - text.positions[j])
        reach = limit if limit > query_position else torch.full_like(limit, query_position)
        ratio = (c.abs() * distance + 1).log() / ((c.abs() * reach + 1).log() + EPSILON)
        bias = tables["output_bias"][text.layer, text.head]
        for unit in range(self.width):
            hidden = tables["hidden"][text.layer, unit] * ratio + tables["hidden_bias"][text.layer, unit]
            bias = bias + tables["output"][text.layer, text.head, unit] * hidden.clamp(min=0)
        return (text.q[i] * text.k[j]).sum() / math.sqrt(text.shape.head_dim) + bias

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        keys = torch.arange(shape.context_length - 1, -1, -1, device=tables["c"].device).view(1, 1, 1, -1)
        pictures: dict[str, Picture] = {}
        for layer in range(shape.num_layers):
            bias = self._bias({name: table[layer].float() for name, table in tables.items()}, keys[..., :1], keys)
            title = f"Bias of layer {layer} for the last query of a context"
            pictures[f"bias_layer_{layer}"] = curves_of("head", title, "distance", "bias", bias[0, :, 0], _BIAS)
        return pictures


def _pieces(of_layer: Tables) -> tuple[Tensor, Tensor, Tensor]:
    """Return the network as lines: ends of all pieces but the last, (width,); slopes, intercepts (H, width + 1)."""
    weight, bias, output = of_layer["hidden"], of_layer["hidden_bias"], of_layer["output"]
    with torch.no_grad():
        ends, units = (-bias / weight).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).sort()
        beyond = torch.arange(len(ends) + 1, device=ends.device)[:, None] > units.argsort()  # (pieces, units)
        works = torch.where(weight == 0, bias > 0, beyond == (weight > 0)).to(weight.dtype)
    return ends, output @ (works * weight).mT, output @ (works * bias).mT + of_layer["output_bias"][:, None]
