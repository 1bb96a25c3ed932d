"""Rotary positions whose products also fade with distance, fast pairs first (Sun et al. 2022, "A
Length-Extrapolatable Transformer", section 2.2 and algorithm 1).

    score[i, j] = Re sum_d q_i[d] conj(k_j[d]) e^(sqrt(-1) (i - j) f_d) zeta_d^((i - j) / scale_base) / sqrt(Dh)

    f_d = base^(-2 d / Dh)          zeta_d = (2 d / Dh + 0.4) / 1.4

where channels (2 d, 2 d + 1) are one complex number, as in the authors' code. Queries take zeta^((i - c) / scale_base)
and keys zeta^((c - j) / scale_base), so that c cancels. Their code takes half the length for c, which a cache doesn't
know; here it is 4 scale_base, always, so that both stay small in half precision over the first 8 scale_base positions.
Beyond 64 scale_base positions they would leave the range of float32, so longer texts are refused.

The formula fades where j < i and grows where j > i, for causal models. Left out is the paper's blockwise attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.base import Curves, Explanation, HeadInputs, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.rope import wavelengths
from poslab.positions.rotary import Rotation, angles, once_per_pass

GAMMA = 0.4
CENTRE, REACH = 4, 64  # in units of scale_base: c, and the positions that float32 can take

_FADING = (
    "Products fade with distance, those of fast pairs first: they would turn many times until there. Nothing is "
    "learned. Surprising: how little of it there is within a context much shorter than scale_base."
)


@dataclass(frozen=True)
class XPos(PositionScheme):
    """Rotary positions with decay, which learn nothing. The larger scale_base, the slower products fade."""

    base: float = 10000.0
    scale_base: float = 512.0

    variants = ({"scale_base": 64.0},)

    def __post_init__(self) -> None:
        if not self.base > 1:
            raise SettingError("base", self.base, "must be above 1")
        if not self.scale_base > 0:
            raise SettingError("scale_base", self.scale_base, "must be above 0")

    def check(self, shape: ModelShape) -> None:
        if shape.head_dim < 2:
            raise SettingError("num_heads", shape.num_heads, f"leaves one channel of {shape.embed_dim}, but pairs turn")
        if shape.context_length > self.max_length(shape):
            problem = f"knows {self.max_length(shape)} positions, but the context is {shape.context_length}"
            raise SettingError("scale_base", self.scale_base, problem)

    def warnings(self, shape: ModelShape) -> list[str]:
        return [] if shape.causal else ["pos=xpos: in a model that sees the future, what comes after a token grows"]

    def max_length(self, shape: ModelShape) -> int:
        return int(REACH * self.scale_base)

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        return self._turned(q, positions, 0)

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor) -> Tensor:
        return self._turned(k, positions, 1)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        q, k, width = text.q[i], text.k[j], text.shape.head_dim
        distance = text.positions[i] - text.positions[j]
        total = q[-1] * k[-1] if width % 2 else torch.zeros_like(q[0])
        for even in range(0, width - 1, 2):
            angle = distance * self.base ** (-even / width)
            fading = ((even / width + GAMMA) / (1 + GAMMA)) ** (distance / self.scale_base)
            (q_real, q_imaginary), (k_real, k_imaginary) = q[even : even + 2], k[even : even + 2]
            real, imaginary = q_real * k_real + q_imaginary * k_imaginary, q_imaginary * k_real - q_real * k_imaginary
            total = total + fading * (real * math.cos(angle) - imaginary * math.sin(angle))
        return total / math.sqrt(width)

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        share = torch.arange(0, shape.head_dim - 1, 2) / shape.head_dim  # 2 d / Dh of each pair
        distances = torch.tensor(shape.distances)
        fading = ((share + GAMMA) / (1 + GAMMA)) ** (distances[:, None] / self.scale_base)  # (R, pairs)
        lines = {f"pair {pair}": fading[:, pair] for pair in sorted({0, len(share) // 2, len(share) - 1})}
        title = "What is left of a pair's product"
        return {
            "wavelengths": wavelengths(self.base**-share, shape),
            "fading": Curves(title, "distance", "factor", distances.tolist(), lines, _FADING),
        }

    def _turned(self, x: Tensor, positions: Tensor, which: int) -> Tensor:
        """Rotate x (B, H, T, Dh), queries (0) or keys (1)."""
        shares = [even / x.shape[-1] for even in range(0, x.shape[-1] - 1, 2)]  # 2 d / Dh

        def rotations() -> tuple[Rotation, Rotation]:
            angle = angles(positions, [self.base**-share for share in shares])  # (T, n)
            fading = [math.log((share + GAMMA) / (1 + GAMMA)) / self.scale_base for share in shares]
            growth = angles(positions - CENTRE * self.scale_base, fading).exp()  # (T, n), of queries
            queries, keys = (Rotation.by(angle, x, interleaved=True, growth=g) for g in (growth, 1 / growth))
            return queries, keys

        return once_per_pass(positions, (self, x.shape[-1], x.dtype), rotations)[which].turn(x)
