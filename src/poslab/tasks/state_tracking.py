"""Tasks that follow a state through instructions: the bit written last, the value of a variable.

Both are also tested at another density of the instructions that change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from poslab.errors import SettingError, require_at_least
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, numbers, one_answer

WRITE, READ, IGNORE = 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Task):
    """Flip-flop: what bit was written last?

    Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling": instructions w (write), r (read)
    and i (ignore), each followed by a bit; after r it is the bit of the last w. The first instruction is w, the last r;
    of the others a share `ignore` is i, the rest half w, half r. Only bits after r are asked. Length is the number of
    tokens. Trained with one share of i and tested with others, too: with the paper's, long gaps or hardly any.
    """

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


@dataclass(frozen=True, kw_only=True)
class Counter(Task):
    """Count: what is the value of this variable?

    Golovneva et al. 2024, "Contextual Position Encoding", the counting task: operations on a few variables, `a=0`
    (set), `a++` (increment) and `pass`, drawn with weights 1 : 7 : 50; then one variable is queried. All begin at 0.
    Values end at `highest`, where increments do nothing. Each operation is one token; length is the number of
    operations. Also tested with twice and half as much weight of `pass`.
    """

    variables: int = 3
    highest: int = 10
    passes: float = 50.0  # weight of `pass`, against those below
    sets: float = 1.0
    increments: float = 7.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, variables=self.variables, highest=self.highest)
        require_at_least(0, passes=self.passes, sets=self.sets, increments=self.increments)
        if not self.passes + self.sets + self.increments > 0:
            raise SettingError("passes", self.passes, "is 0, as sets and increments are: one must be above")

    @property
    def symbols(self) -> tuple[str, ...]:
        names, endings = alphabet(self.variables), ("=0", "++", "?")
        operations = (f"{name}{ending}" for ending in endings for name in names)
        return (*map(str, range(self.highest + 1)), "pass", *operations)

    def tokens(self, length: int) -> int:
        return length + 1

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        nothing = self.highest + 1
        sets, increments, asks = (nothing + 1 + kind * self.variables for kind in range(3))
        weights = torch.tensor([self.passes, self.sets, self.increments])
        kind = torch.multinomial(weights, count * length, replacement=True, generator=generator).view(count, length)
        variable = numbers(self.variables, generator, count, length)
        first = torch.tensor([nothing, sets, increments])[kind]
        operations = torch.where(kind == 0, nothing, first + variable)
        queried = numbers(self.variables, generator, count, 1)
        mine = variable == queried
        so_far = (mine & (kind == 2)).cumsum(1)  # increments of the queried variable
        until_set = torch.where(mine & (kind == 1), so_far, 0).amax(1)
        value = (so_far[:, -1] - until_set).clamp(max=self.highest)
        return one_answer(torch.cat([operations, queried + asks], 1), value)

    def shifts(self) -> dict[str, Task]:
        return {"sparse": replace(self, passes=2 * self.passes), "dense": replace(self, passes=self.passes / 2)}
