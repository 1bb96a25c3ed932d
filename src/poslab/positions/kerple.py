"""KERPLE: a bias that falls with the logarithm or a power of distance, as each head learns it (Chi et al. 2022).

    score[i, j] = q_i . k_j / sqrt(Dh) + bias_h(|i - j|)

    kernel = log      bias(d) = -r1 log(1 + r2 d)          r1, r2 > 0          (equation 6)
    kernel = power    bias(d) = -r1 d^r2                   r1 > 0, 0 < r2 < 2  (equation 5)

Both kernels are conditionally positive definite only within these limits. The authors' code keeps to them by clamping
the parameters after each step; here the tables are free, and r1 (and r2 of the logarithm) are their absolute values,
the exponent is 2 sigmoid(table). So r1 = 0 is no position at all, and no value stops learning at a limit. They start
where the authors' do: for the logarithm r1 in (0, 2) and r2 in (0, 1), for the power r1 in (0, 1) and r2 in (0, 2). As
in the paper's figure 1 all layers share them; `share_layers=false` gives each layer its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import require_one_of
from poslab.positions.base import HeadInputs, ModelShape, Picture, PositionScheme, RelativeTerms, Tables
from poslab.positions.t5 import learned_bias

_BIAS = (
    "What each head adds to the score of a key so far back; 1 less makes its weight 2.7 times smaller. All lines "
    "fall, as the kernel can't do otherwise: what is learned is how steeply. A flat one sees far and near alike. "
    "Surprising: heads that have all come to one line."
)


@dataclass(frozen=True)
class Kerple(PositionScheme):
    """KERPLE; the default is the kernel that extrapolates best in the paper."""

    kernel: str = "log"
    share_layers: bool = True
    variants = ({"kernel": "power", "share_layers": False},)

    def __post_init__(self) -> None:
        require_one_of(("log", "power"), kernel=self.kernel)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        layers = [] if self.share_layers else [shape.num_layers]
        r1, r2 = torch.rand(2, *layers, shape.num_heads)  # each ([L], H)
        if self.kernel == "log":
            return {"r1": 2 * r1, "r2": r2}
        return {"r1": r1, "r2": r2.logit(eps=0.005)}  # so that the exponent begins between 0.01 and 1.99

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        r1, r2 = (tables[name] if self.share_layers else tables[name][layer] for name in ("r1", "r2"))
        r1, r2 = (r.to(torch.promote_types(r.dtype, torch.float32))[:, None] for r in (r1, r2))  # (H, 1)
        distance = torch.arange(distances.start, distances.stop, device=r1.device).abs().to(r1.dtype)
        falling = torch.log1p(r2.abs() * distance) if self.kernel == "log" else distance ** (2 * r2.sigmoid())
        return RelativeTerms(distances[0], distances[-1], bias=-r1.abs() * falling)  # (H, R)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        own = tables if self.share_layers else {name: table[text.layer] for name, table in tables.items()}
        r1, r2 = (own[name][text.head] for name in ("r1", "r2"))
        distance = abs(text.positions[i] - text.positions[j])
        if self.kernel == "log":
            bias = -r1.abs() * (1 + r2.abs() * distance).log()
        else:
            bias = -r1.abs() * distance ** (2 / (1 + (-r2).exp()))
        return super().reference_score(tables, text, i, j) + bias

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        return learned_bias(self, tables, shape, shape.distances, _BIAS)
