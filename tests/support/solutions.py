"""Solutions of scripts/exercises.py."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import exercises
from poslab.positions import ModelShape, RelativeTerms
from poslab.positions.base import Tables


@dataclass(frozen=True)
class MyWindow(exercises.MyWindow):
    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        return RelativeTerms(0, 0, window=self.window)


@dataclass(frozen=True)
class MyALiBi(exercises.MyALiBi):
    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        power = 2 ** (shape.num_heads.bit_length() - 1)  # the largest power of two that is no more than num_heads
        exponents = [8 * h / power for h in range(1, power + 1)]
        exponents += [4 * h / power for h in range(1, 2 * (shape.num_heads - power), 2)]
        slopes = 2.0 ** -torch.tensor(exponents, dtype=torch.float64)
        return RelativeTerms(distances[0], distances[-1], bias=-slopes[:, None] * torch.tensor(distances).abs())


@dataclass(frozen=True)
class MyT5(exercises.MyT5):
    def _buckets(self, distance: Tensor, causal: bool) -> Tensor:
        side = self.num_buckets if causal else self.num_buckets // 2
        exact, d = side // 2, distance.abs()
        share = (d.clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        far = (exact + (share * (side - exact)).long()).clamp(max=side - 1)
        return torch.where(d < exact, d, far) + side * (distance < 0)


@dataclass(frozen=True)
class MyHalfRoPE(exercises.MyHalfRoPE):
    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        n = x.shape[-1] // 4  # pairs
        frequency = self.base ** (-torch.arange(n, dtype=torch.float64, device=x.device) / n)
        angle = positions[:, None] * frequency  # (T, n)
        cos, sin = angle.cos(), angle.sin()
        a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1).to(x.dtype)
