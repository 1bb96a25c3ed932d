"""Learned absolute positions: a vector per position, added to the token embeddings.

Vaswani et al. 2017, "Attention Is All You Need", section 3.5 (the learned variant); GPT-2 (Radford et al. 2019).

    x_t = token_embedding_t + position_t          position: (max_positions, D), normal, as token embeddings

With `random_offset` each text of a training batch begins at a random position, so that positions beyond the longest
text are learned, too; evaluation and generation count from 0. This is the learned table of Huang et al. 2024 ("A Formal
Framework for Understanding Length Generalization in Transformers", section 5); SHAPE (Kiyono et al. 2021, "Shifted
Absolute Position Embedding for Transformers", section 3) adds the offset to sinusoids:

    x_t = token_embedding_t + position_(t + offset)          offset uniform from 0 to max_positions - T
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import HFEquivalent, Matrix, ModelShape, Picture, PositionScheme, Tables

_SIMILARITY = (
    "How alike the vectors of two positions are: orange alike, blue opposite, pale unrelated, as all begin. A band "
    "along the diagonal means that neighbours came to be alike, which nobody told the model; a pale picture, that "
    "it never had to learn it. The table ends where the picture does: a position beyond has no vector. Surprising: "
    "stripes far from the diagonal."
)


@dataclass(frozen=True)
class Absolute(PositionScheme):
    """A learned table of max_positions rows; nothing is known beyond its last one.

    max_positions: None for the context length, with random_offset at least twice that of the longest text of training.
    """

    random_offset: bool = False
    max_positions: int | None = None
    shift_invariant = False
    samples_each_text = True

    variants = ({"random_offset": True, "max_positions": 5000},)

    def __post_init__(self) -> None:
        require_at_least(1, max_positions=self.max_positions)

    def overrides(self, hook: str, layer: int | None = None) -> bool:
        return super().overrides(hook, layer) and (hook != "sample" or self.random_offset)

    def check(self, shape: ModelShape) -> None:
        if self.max_length(shape) < shape.context_length:
            problem = f"must be at least the context length, {shape.context_length}, or null"
            raise SettingError("max_positions", self.max_positions, problem)

    def warnings(self, shape: ModelShape) -> list[str]:
        known, context, longest = self.max_length(shape), shape.context_length, shape.training_length
        if self.random_offset and known <= longest:
            problem = f"pos.random_offset=true does nothing for texts of {longest} tokens, the longest"
            return [f"{problem}: pos.max_positions={known} leaves no other start"]
        if not self.random_offset and known > context:
            problem = f"a context of {context} never trains positions {context} to {known - 1}"
            return [f"pos.max_positions={known}: {problem} without pos.random_offset=true"]
        return []

    def max_length(self, shape: ModelShape) -> int:
        room = 2 * shape.training_length if self.random_offset else 0
        return self.max_positions or max(shape.context_length, room)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"position": torch.randn(self.max_length(shape), shape.embed_dim) * shape.token_std}

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor | None:
        if not self.random_offset:
            return None
        offset = torch.randint(self.max_length(shape) - length + 1, (), generator=generator)
        return offset + torch.arange(length)

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        return x + torch.nn.functional.embedding(positions, tables["position"])  # (B, T, D) + (T, D)

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent:
        positions = {"n_positions": self.max_length(shape)}
        return HFEquivalent("gpt2", positions, {"transformer.wpe.weight": tables["position"]})

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        unit = torch.nn.functional.normalize(tables["position"].float(), dim=-1)
        similarity = unit @ unit.T  # (max_positions, max_positions)
        return {"similarity": Matrix("Cosine similarity of positions", "position", "position", similarity, _SIMILARITY)}
