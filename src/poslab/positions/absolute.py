"""Learned absolute positions: a vector per position, added to the token embeddings.

Vaswani et al. 2017, "Attention Is All You Need", section 3.5 (the learned variant); GPT-2 (Radford et al. 2019).

    x_t = token_embedding_t + position_t          position: (context_length, D), normal with std 0.02 as in GPT-2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poslab.lazy import torch
from poslab.positions.base import Matrix, ModelShape, Picture, PositionScheme

if TYPE_CHECKING:
    from torch import Tensor

    from poslab.positions.base import Tables


@dataclass(frozen=True)
class Absolute(PositionScheme):
    """A learned table; nothing is known beyond its last row."""

    shift_invariant = False

    def max_length(self, shape: ModelShape) -> int:
        return shape.context_length

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"position": torch.randn(shape.context_length, shape.embed_dim) * 0.02}

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        return x + torch.nn.functional.embedding(positions, tables["position"])  # (B, T, D) + (T, D)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        unit = torch.nn.functional.normalize(tables["position"].float(), dim=-1)
        similarity = unit @ unit.T  # (context_length, context_length)
        return {"similarity": Matrix("Cosine similarity of positions", "position", "position", similarity)}
