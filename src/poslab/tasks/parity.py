"""Is the number of ones odd?

Deletang et al. 2023 (parity check, regular); Zhou et al. 2023 predict that transformers don't go beyond the lengths
trained. The negative control: a scheme that is above chance at twice the length calls for a look at the experiment.
x SEP, then one answer. Length is the number of symbols before SEP.
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
class Parity(Task):
    @property
    def symbols(self) -> tuple[str, ...]:
        return ("0", "1", "SEP")

    def tokens(self, length: int) -> int:
        return length + 1

    def batch(self, generator: Generator, count: int, length: int) -> Examples:
        bits = numbers(2, generator, count, length)
        question = torch.cat([bits, torch.full((count, 1), SEP)], 1)
        return one_answer(question, bits.sum(1) % 2)
