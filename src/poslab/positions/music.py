"""Music Transformer's relative attention: a learned key for every distance of the context (Huang et al. 2019, eq. 3).

    score[i, j] = q_i . (k_j + E_{h, i - j}) / sqrt(Dh)

These are the keys of Shaw et al. (2018) without the clip and without values, for each layer and head. The paper's
"skewing" computes them without a tensor of (T, T, Dh); here the kernels do. The table begins as in the authors' code:
normal with std 1 / sqrt(Dh). Nothing is known beyond the distances of the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.base import HeadInputs, ModelShape, Picture, PositionScheme, RelativeTerms, Tables
from poslab.positions.pictures import curves_of

_NORM = (
    "How long the key is that belongs to each distance: the longer, the more that distance can change. Far ones "
    "occur in few queries and stay near their start. Surprising: distances that stand out from their neighbours."
)


@dataclass(frozen=True)
class MusicTransformer(PositionScheme):
    """Music Transformer's keys; no settings, as the table is as long as the context."""

    def max_length(self, shape: ModelShape) -> int:
        return shape.context_length

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        size = (shape.num_layers, shape.num_heads, len(shape.distances), shape.head_dim)
        return {"keys": torch.randn(size) * shape.head_dim**-0.5}

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        keys = tables["keys"][layer]  # (H, R, Dh)
        rows = keys.shape[-2]
        lowest = 0 if shape.causal else -(rows // 2)
        if distances[-1] > lowest + rows - 1:
            known = lowest + rows
            raise SettingError("tokens", f"{distances[-1] + 1} long", f"these tables know {known} positions, no more")
        return RelativeTerms(lowest, lowest + rows - 1, keys=keys)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        keys = tables["keys"][text.layer, text.head]  # (R, Dh)
        at_0 = 0 if text.shape.causal else len(keys) // 2
        relative_key = keys[at_0 + text.positions[i] - text.positions[j]]
        return text.q[i] @ (text.k[j] + relative_key) / text.shape.head_dim**0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        norms = tables["keys"].float().norm(dim=-1).mean(1)  # (L, R)
        title = "Norm of the relative keys, mean of the heads"
        return {"keys_norm": curves_of("layer", title, "distance", "L2 norm", norms, _NORM, shape.distances)}
