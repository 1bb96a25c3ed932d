"""Tasks about two tokens at a fixed distance: name what stood `steps` before, and fill the gap in a line repeated."""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, numbers, one_answer


@dataclass(frozen=True, kw_only=True)
class Back(Task):
    """Name the symbol that stood `steps` positions before, at every position.

    A dense form of stride copy (Huang et al. 2024, appendix G.7), which needs attention at a fixed distance. One layer
    that knows distances is enough; without them a model must count. Length is the number of tokens.
    """

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


@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(Task):
    """Missing duplicate: a line twice, but one symbol is missing: which?

    Deletang et al. 2023 (missing duplicate string, context-sensitive): w w with one symbol, anywhere, replaced by "?".
    Its double stands at a fixed distance, before or after it. w w SEP, then one answer. Length is that of w.
    """

    vocabulary: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(2, vocabulary=self.vocabulary)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*alphabet(self.vocabulary), "?", "SEP")

    def tokens(self, length: int) -> int:
        return 2 * length + 1

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        missing, sep = self.vocabulary, self.vocabulary + 1
        twice = numbers(self.vocabulary, generator, count, length).repeat(1, 2)
        position = numbers(2 * length, generator, count, 1)
        question = torch.cat([twice.scatter(1, position, missing), torch.full((count, 1), sep)], 1)
        return one_answer(question, twice.gather(1, position).squeeze(1))
