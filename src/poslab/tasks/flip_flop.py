"""Flip-flop: what bit was written last?

Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling": instructions w (write), r (read) and i
(ignore), each followed by a bit; after r it is the bit of the last w. The first instruction is w, the last r; of the
others a share `ignore` is i, the rest half w, half r. Only bits after r are asked. Length is the number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poslab.errors import SettingError
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task, numbers

WRITE, READ, IGNORE = 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Task):
    """Flip-flop task, trained with one share of i and tested with others, too: with the paper's, long gaps or hardly
    any."""

    ignore: float = 0.8
    sparse_ignore: float = 0.98
    dense_ignore: float = 0.1

    shortest = 4
    multiple = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("ignore", "sparse_ignore", "dense_ignore"):
            share = getattr(self, option)
            if not 0 <= share <= 1:
                raise SettingError(option, share, "must be a share, from 0 to 1")

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("0", "1", "w", "r", "i")

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        steps = length // 2
        chance = torch.rand(count, steps, generator=generator)
        instruction = torch.full((count, steps), IGNORE)
        instruction[chance < 1 - self.ignore] = READ
        instruction[chance < (1 - self.ignore) / 2] = WRITE
        instruction[:, 0], instruction[:, -1] = WRITE, READ
        drawn = numbers(2, generator, count, steps)
        written = torch.where(instruction == WRITE, torch.arange(steps), 0).cummax(1).values  # the last w up to here
        bits = torch.where(instruction == READ, drawn.gather(1, written), drawn)
        tokens = torch.stack([instruction, bits], 2).flatten(1)
        targets = torch.full_like(tokens, IGNORED)
        targets[:, ::2] = torch.where(instruction == READ, bits, IGNORED)
        return Examples(tokens, targets)

    def shifts(self) -> dict[str, Task]:
        return {"sparse": replace(self, ignore=self.sparse_ignore), "dense": replace(self, ignore=self.dense_ignore)}
