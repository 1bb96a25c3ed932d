"""Four positional encodings with a method left to write; `python scripts/check.py exercises.MyWindow` examines one.

data/learn/exercises.md has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.positions.alibi import ALiBi
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, Tables
from poslab.positions.rope import RoPE
from poslab.positions.t5 import T5


@dataclass(frozen=True)
class MyWindow(PositionScheme):
    """Each query sees its own key and those before it, `window` keys in all."""

    window: int = 16

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        raise NotImplementedError("return RelativeTerms without a table, only with a window")

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        score = super().reference_score(tables, text, i, j)
        return score if abs(i - j) < self.window else score - math.inf


@dataclass(frozen=True)
class MyALiBi(PositionScheme):
    """A bias that falls with distance, by a slope of each head."""

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        raise NotImplementedError("return RelativeTerms(distances[0], distances[-1], bias=...), the bias is (H, R)")

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        return ALiBi().reference_score(tables, text, i, j)


@dataclass(frozen=True)
class MyT5(PositionScheme):
    """A learned bias by head and bucket of distances."""

    num_buckets: int = 32
    max_distance: int = 128

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"bias": torch.randn(self.num_buckets, shape.num_heads) * shape.embed_dim**-0.5}

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        buckets = self._buckets(torch.arange(distances.start, distances.stop), shape.causal)
        bias = tables["bias"][buckets.to(tables["bias"].device)].T  # (R, H) -> (H, R)
        return RelativeTerms(distances[0], distances[-1], bias=bias)

    def _buckets(self, distance: Tensor, causal: bool) -> Tensor:
        """Return the bucket of each distance i - j, both (R,) int64."""
        raise NotImplementedError("return the bucket of each distance, (R,) int64")

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        return T5(self.num_buckets, self.max_distance).reference_score(tables, text, i, j)


@dataclass(frozen=True)
class MyHalfRoPE(PositionScheme):
    """RoPE on the first half of the channels of each head; the others stay as they are."""

    base: float = 10000.0

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        raise NotImplementedError("return x (B, H, T, Dh) with the first half of its channels turned by position")

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        return RoPE(self.base, fraction=0.5).reference_score(tables, text, i, j)
