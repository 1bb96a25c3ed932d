"""Bit tasks: one question about a line of bits: x SEP, then one answer. Length is the number of bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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


@dataclass(frozen=True, kw_only=True)
class Majority(Bits):
    """Majority: which of two symbols is more frequent? No position is needed, so it tells which schemes get in the way:
    the control of all comparisons.

    Huang et al. 2024 (binary majority). As in the authors' code, the number of ones is drawn first, any from 0 to the
    length as likely as another, and then their order; with uniform_ones=false each bit is drawn by itself, which makes
    most lines near-ties. Lengths are odd, so that there is an answer; the paper has even ones, and leaves out ties.
    """

    uniform_ones: bool = True
    multiple = 2
    remainder = 1

    def bits(self, generator: torch.Generator, count: int, length: int) -> Tensor:
        if not self.uniform_ones:
            return super().bits(generator, count, length)
        ones = numbers(length + 1, generator, count, 1)
        return (torch.rand(count, length, generator=generator).argsort(1) < ones).long()

    def answer(self, bits: Tensor) -> Tensor:
        return (2 * bits.sum(1) > bits.shape[1]).long()


@dataclass(frozen=True, kw_only=True)
class Parity(Bits):
    """Parity: is the number of ones odd (Deletang et al. 2023, parity check, regular)?

    Zhou et al. 2023 predict that transformers don't go beyond the lengths trained. The negative control: a scheme that
    is above chance at twice the length calls for a look at the experiment.
    """

    def answer(self, bits: Tensor) -> Tensor:
        return bits.sum(1) % 2
