"""Add two numbers, the last digit first.

Both operands have `length` digits, zeros included, the sum has one more; all are written from the units on, so that a
carry is known when it is needed: BOS a + b = c EOS. Lee et al. 2023, "Teaching Arithmetic to Small Transformers"
(reversed answers); figures by length in Zhou et al. 2024, "Transformers Can Achieve Length Generalization But Not
Robustly".

coupled: digits of the same significance share a position (Cho et al. 2024, "Position Coupling"): s + 1 for the units, s
for "+" and "=", 0 for BOS, with s drawn anew for each example, so that all positions up to `positions` are trained.
(There operands are written from the highest digit on; here all three numbers run the same way.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.tasks.base import Examples, Task, numbers
from poslab.tasks.transcription import written_answer

BOS, EQUALS, EOS, PLUS = range(10, 14)


@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    coupled: bool = False
    positions: int = 32  # with coupled: how many there are

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coupled and self.positions < self.longest + 3:
            problem = f"sums of {self.longest} digits need at least {self.longest + 3}"
            raise SettingError("positions", self.positions, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*map(str, range(10)), "BOS", "=", "EOS", "+")

    def tokens(self, length: int) -> int:
        return 3 * length + 4

    def reach(self, length: int) -> int:
        return self.positions if self.coupled else self.tokens(length)

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        first, second = numbers(10, generator, 2, count, length)
        question = torch.cat([first, torch.full((count, 1), PLUS), second], 1)
        examples = written_answer(question, _sum(first, second), BOS, EQUALS, EOS)
        if not self.coupled:
            return examples
        start = numbers(self.positions - length - 2, generator, count, 1) + 1  # from 1 on
        number = torch.arange(length + 1)  # "+" or "=", and the digits after it
        places = torch.cat([number[1:], number, torch.arange(length + 2)])
        positions = torch.cat([torch.zeros(count, 1, dtype=torch.int64), start + places], 1)
        return examples._replace(positions=positions)

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        return {"no_eos": examples.targets != EOS}


def _sum(first: Tensor, second: Tensor) -> Tensor:
    """Return the digits (B, n + 1) of sums of numbers of digits (B, n), from the units on."""
    carry, digits = torch.zeros_like(first[:, 0]), []
    for column in (first + second).unbind(1):
        digits.append((column + carry) % 10)
        carry = (column + carry) // 10
    return torch.stack([*digits, carry], 1)
