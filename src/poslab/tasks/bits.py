"""Bit tasks: one question about a line of bits: x SEP, then one answer. Length is the number of bits."""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor, torch
from poslab.tasks.base import Examples, Task, numbers, one_answer

SEP = 2


@dataclass(frozen=True, kw_only=True)
class Bits(Task):
    @property
    def symbols(self) -> tuple[str, ...]:
        return ("0", "1", "SEP")

    def tokens(self, length: int) -> int:
        return length + 1

    def answer(self, bits: Tensor) -> Tensor:
        """Return the answers (B,), 0 or 1, to bits (B, n)."""
        raise NotImplementedError

    def bits(self, generator: torch.Generator, count: int, length: int) -> Tensor:
        """Draw bits (count, length), by default each by itself."""
        return numbers(2, generator, count, length)

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        bits = self.bits(generator, count, length)
        question = torch.cat([bits, torch.full((count, 1), SEP)], 1)
        return one_answer(question, self.answer(bits))
