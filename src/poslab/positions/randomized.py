"""Randomised positions (Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of
Transformers", section 3.1): a short text is trained on with the positions of a long one.

    positions i_1 < i_2 < ... < i_T drawn from {0, ..., max_position - 1}, without replacement

Any scheme knows them: it sees a model whose context is max_position. Positions are drawn in training and, as in the
paper, in evaluation: there four times, by the run's seed, and what is measured is the mean over these draws. A text
that is generated has one draw. With count_in_evaluation=true evaluation and generation count 0, 1, 2, ...

Chosen here: one draw for each training step, the same for its whole batch, as in the paper; positions from 0, which are
from 1 there; all layers and schemes know the same positions. In the authors' code (randomized_positional_encodings,
models/positional_encodings.py) relative schemes draw distances, one number for each diagonal, so that i - j is the same
for all pairs of a diagonal, and rotary ones draw new positions in each layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import ModelShape, PositionScheme
from poslab.positions.combined import Wrapper
from poslab.positions.rope import RoPE


@dataclass(frozen=True)
class Randomized(Wrapper):
    """Randomised positions of a scheme `of`; max_position: how many there are to draw from, the paper's L.
    count_in_evaluation: whether evaluation and generation count 0, 1, 2, ... in place of drawing."""

    of: PositionScheme = field(default_factory=RoPE)
    max_position: int = 2048
    count_in_evaluation: bool = False

    samples_each_text = False

    variants = (
        {"of": "t5", "max_position": 512},
        {"of": "absolute", "max_position": 512},
    )

    def __post_init__(self) -> None:
        require_at_least(1, max_position=self.max_position)

    def _shape_of_parts(self, shape: ModelShape) -> ModelShape:
        """Return the model's shape as the scheme sees it: one that reads max_position tokens."""
        return replace(shape, context_length=self.max_position, longest_text=shape.training_length)

    @property
    def samples_in_evaluation(self) -> bool:  # type: ignore[override]
        return not self.count_in_evaluation

    def check(self, shape: ModelShape) -> None:
        if self.max_position < shape.context_length:
            problem = f"must be at least the context length, {shape.context_length}, or there are too few to draw from"
            raise SettingError("max_position", self.max_position, problem)
        super().check(shape)

    def warnings(self, shape: ModelShape) -> list[str]:
        texts = super().warnings(shape)
        if self.max_position <= shape.training_length:
            longest = f"texts of {shape.training_length} tokens, the longest"
            texts.append(f"pos.max_position={self.max_position}: nothing is random for {longest}")
        if self.of.overrides("sample"):
            texts.append("pos.of draws positions, too: those of pos.max_position are taken")
        return texts

    def max_length(self, shape: ModelShape) -> int | None:
        known = super().max_length(shape)
        return known if self.count_in_evaluation or known is not None else self.max_position

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(self.max_position, generator=generator)[:length].sort().values
