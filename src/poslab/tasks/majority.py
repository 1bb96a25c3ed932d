"""Which of two symbols is more frequent?

Huang et al. 2024 (binary majority). No position is needed, so it tells which schemes get in the way: the control of all
comparisons. Lengths are odd, so that there is an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.bits import Bits


@dataclass(frozen=True, kw_only=True)
class Majority(Bits):
    multiple = 2
    remainder = 1

    def answer(self, bits: Tensor) -> Tensor:
        return (2 * bits.sum(1) > bits.shape[1]).long()
