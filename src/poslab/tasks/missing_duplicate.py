"""Missing duplicate: a line twice, but one symbol is missing: which?

Deletang et al. 2023 (missing duplicate string, context-sensitive): w w with one symbol, anywhere, replaced by "?".
Its double stands at a fixed distance, before or after it. w w SEP, then one answer. Length is that of w.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import require_at_least
from poslab.lazy import torch
from poslab.tasks.base import Examples, Task, alphabet, numbers, one_answer


@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(Task):
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
