"""Majority: which of two symbols is more frequent?

Huang et al. 2024 (binary majority). No position is needed, so it tells which schemes get in the way: the control of all
comparisons. As in the authors' code, the number of ones is drawn first, any from 0 to the length as likely as another,
and then their order; with uniform_ones=false each bit is drawn by itself, which makes most lines near-ties. Lengths are
odd, so that there is an answer; the paper has even ones, too, and leaves out ties.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor, torch
from poslab.tasks.base import numbers
from poslab.tasks.bits import Bits


@dataclass(frozen=True, kw_only=True)
class Majority(Bits):
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
