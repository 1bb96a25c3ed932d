"""Which of two symbols is more frequent?

Huang et al. 2024 (binary majority): x SEP, then one answer. No position is needed, so it tells which schemes get in the
way: the control of all comparisons. Length is the number of symbols before SEP, odd, so that there is an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poslab.lazy import torch
from poslab.tasks.base import Examples, Task, numbers, one_answer

if TYPE_CHECKING:
    from torch import Generator

SEP = 2


@dataclass(frozen=True, kw_only=True)
class Majority(Task):
    multiple = 2
    remainder = 1

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("0", "1", "SEP")

    def tokens(self, length: int) -> int:
        return length + 1

    def batch(self, generator: Generator, count: int, length: int) -> Examples:
        bits = numbers(2, generator, count, length)
        question = torch.cat([bits, torch.full((count, 1), SEP)], 1)
        return one_answer(question, (2 * bits.sum(1) > length).long())
