"""Transformer-XL's relative attention (Dai et al. 2019, section 3.3): sinusoids of the distance make keys.

    score[i, j] = ((q_i + u) . k_j + (q_i + v) . W R_{i - j}) / sqrt(Dh)

    R_d = [sin(d w_0), sin(d w_1), ..., cos(d w_0), cos(d w_1), ...]          w_m = 10000^(-2 m / D)

u and v are learned per layer and head, W (`project`, laid out as the weight of a Linear) per layer. The paper shares u
and v by all layers; its code can untie them, and XLNet does. Here the query is q + u and W R_d are the relative keys.
What is then missing is a number for each distance, the bias (v - u) . W R_d / sqrt(Dh). Everything begins normal with
std 0.02, as in the authors' code. The memory of earlier segments, the paper's other half, is what a cache is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.base import HeadInputs, ModelShape, Picture, PositionScheme, RelativeTerms, Tables
from poslab.positions.pictures import curves_of

_BIAS = (
    "What each head adds to the score of a key so far back, whatever the query is; 1 more makes a weight 2.7 times "
    "as large. It is made of sinusoids, so it swings. Surprising: a line that has stayed flat, after which the head "
    "knows distance by its queries alone."
)


@dataclass(frozen=True)
class TransformerXL(PositionScheme):
    """Transformer-XL's scores; no settings."""

    def check(self, shape: ModelShape) -> None:
        if shape.embed_dim % 2:
            raise SettingError("embed_dim", shape.embed_dim, "must be even: half of R are sines, half cosines")

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        heads = (shape.num_layers, shape.num_heads, shape.head_dim)
        sizes = {"u": heads, "v": heads, "project": (shape.num_layers, shape.attention_dim, shape.embed_dim)}
        return {name: torch.randn(size) * 0.02 for name, size in sizes.items()}

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        return q + tables["u"][layer][:, None].to(q.dtype)  # (B, H, T, Dh) + (H, 1, Dh)

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        sinusoids, project = self._sinusoids(tables, shape, distances), tables["project"][layer]
        keys = (sinusoids @ project.T).unflatten(-1, (shape.num_heads, shape.head_dim)).transpose(0, 1)  # (H, R, Dh)
        bias = self._bias(tables["v"][layer] - tables["u"][layer], sinusoids, project)
        return RelativeTerms(distances[0], distances[-1], bias=bias, keys=keys)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        (u, v), project = (tables[name][text.layer, text.head] for name in "uv"), tables["project"][text.layer]
        distance, width, head_dim = text.positions[i] - text.positions[j], text.shape.embed_dim, text.shape.head_dim
        angles = [distance / 10000 ** (2 * m / width) for m in range(width // 2)]
        sinusoids = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=project.dtype)
        own = project[text.head * head_dim : (text.head + 1) * head_dim]  # (Dh, D)
        return ((text.q[i] + u) @ text.k[j] + (text.q[i] + v) @ (own @ sinusoids)) / math.sqrt(head_dim)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        pictures: dict[str, Picture] = {}
        sinusoids = self._sinusoids(tables, shape, shape.distances)
        for layer, v in enumerate(tables["v"]):
            bias = self._bias(v, sinusoids, tables["project"][layer])
            name, title = f"bias_layer_{layer}", "What v adds to a score, by distance"
            pictures[name] = curves_of("head", title, "distance", "score", bias, _BIAS, shape.distances)
        return pictures

    def _sinusoids(self, tables: Tables, shape: ModelShape, distances: range) -> Tensor:
        """Return R_d of each distance, (R, D), the angles in float32 or better."""
        project = tables["project"]
        dtype = torch.promote_types(project.dtype, torch.float32)
        pair = torch.arange(shape.embed_dim // 2, dtype=dtype, device=project.device)
        distance = torch.arange(distances.start, distances.stop, device=project.device)
        angle = distance[:, None] * 10000 ** (-2 * pair / shape.embed_dim)  # (R, D / 2)
        return torch.cat([angle.sin(), angle.cos()], dim=-1).to(project.dtype)

    def _bias(self, query: Tensor, sinusoids: Tensor, project: Tensor) -> Tensor:
        """Return query . W R_d / sqrt(Dh), (H, R), of query (H, Dh), sinusoids (R, D) and project (H Dh, D)."""
        heads, head_dim = query.shape
        onto = query[:, None] @ project.unflatten(0, (heads, head_dim))  # (H, 1, D)
        return onto[:, 0] @ sinusoids.T * head_dim**-0.5
