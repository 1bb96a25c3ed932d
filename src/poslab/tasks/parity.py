"""Parity: is the number of ones odd?

Deletang et al. 2023 (parity check, regular); Zhou et al. 2023 predict that transformers don't go beyond the lengths
trained. The negative control: a scheme that is above chance at twice the length calls for a look at the experiment.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.bits import Bits


@dataclass(frozen=True, kw_only=True)
class Parity(Bits):
    def answer(self, bits: Tensor) -> Tensor:
        return bits.sum(1) % 2
