"""Needle in a haystack: what value stood beside this key, at any depth of a long text?

Kamradt 2023, "Needle In A Haystack - Pressure Testing LLMs": accuracy by depth and by length of the context. With other
needles beside the one that is asked: Hsieh et al. 2024, "RULER: What's the Real Context Size of Your Long-Context
Language Models?", the multi-key task.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.metric import ACCURACY, EXACT
from poslab.tasks.base import IGNORED, Examples, Task, different, numbers

DEPTHS = 8


@dataclass(frozen=True, kw_only=True)
class Needle(Task):
    """A few pairs of key and value, the needles, anywhere in noise. The last tokens are the keys once more, in any
    order, and each asks for its value. Length is the number of tokens.

    Its parts depth_1, ..., depth_8 are the questions whose needle begins in the first, ..., last eighth of the text
    before them. A model that finds values, but not the key beside them, is right in little more than one of `needles`
    answers.
    """

    needles: int = 4
    keys: int = 16
    values: int = 16
    noise: int = 6  # symbols

    metrics = (ACCURACY, EXACT)  # a depth has some questions of an example, and not others

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, needles=self.needles, noise=self.noise)
        require_at_least(2, values=self.values)
        if self.keys < self.needles:
            raise SettingError("keys", self.keys, f"needles={self.needles} need as many different keys")
        if (shortest := min(self.min_length, *self.test_lengths)) < (tokens := 3 * self.needles):
            problem = f"they take {tokens} tokens, each key asked once, more than length {shortest}"
            raise SettingError("needles", self.needles, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        kinds = {"k": self.keys, "v": self.values, "~": self.noise}
        return tuple(f"{kind}{number}" for kind, count in kinds.items() for number in range(count))

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        keys = different(self.keys, generator, count, self.needles)  # (B, N)
        values = numbers(self.values, generator, count, self.needles) + self.keys
        tokens = numbers(self.noise, generator, count, length) + self.keys + self.values
        # Drawn as if a needle were one token, so that none covers another.
        places = different(length - 2 * self.needles, generator, count, self.needles).sort(1).values
        places = places + torch.arange(self.needles)
        tokens.scatter_(1, places, keys).scatter_(1, places + 1, values)
        order = different(self.needles, generator, count, self.needles)
        targets = torch.full_like(tokens, IGNORED)
        tokens[:, -self.needles :], targets[:, -self.needles :] = keys.gather(1, order), values.gather(1, order)
        return Examples(tokens, targets)

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        text, questions = examples.tokens.split([examples.tokens.shape[1] - self.needles, self.needles], 1)
        places = (text[:, None] == questions[:, :, None]).int().argmax(-1)  # (B, N)
        depths = torch.full_like(examples.tokens, -1)
        depths[:, -self.needles :] = DEPTHS * places // text.shape[1]
        return {f"depth_{i + 1}": depths == i for i in range(DEPTHS)}
