"""Name the symbol that stood `steps` positions before, at every position.

A dense form of stride copy (Huang et al. 2024, appendix G.7), which needs attention at a fixed distance. One layer that
knows distances is enough; without them a model must count. Length is the number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, numbers


@dataclass(frozen=True, kw_only=True)
class Back(Task):
    steps: int = 3
    vocabulary: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, steps=self.steps)
        require_at_least(2, vocabulary=self.vocabulary)
        if (shortest := min(self.min_length, *self.test_lengths)) <= self.steps:
            raise SettingError("steps", self.steps, f"nothing is asked within length {shortest}")

    @property
    def symbols(self) -> tuple[str, ...]:
        return alphabet(self.vocabulary)

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        tokens = numbers(self.vocabulary, generator, count, length)
        targets = torch.full_like(tokens, IGNORED)
        targets[:, self.steps :] = tokens[:, : length - self.steps]
        return Examples(tokens, targets)
