"""Associative recall: what value stood beside this key? In noise within a window (MQAR), or from beyond the window.

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models", section 3: pairs of key and
value, then each key once more, which asks for its value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.metric import ACCURACY, EXACT
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, different, numbers

DEPTHS = 4


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Recall within a window: the keys come again in noise, anywhere and in any order, so a longer text puts the same
    pairs further away. Length is the number of tokens.

    Its parts depth_1, ..., depth_4 are keys asked in the first, ..., last quarter of what follows the pairs. `repeated`
    of the keys, the part of that name, stand in two of the pairs, and the later one counts: by content alone, either.
    """

    pairs: int = 4
    repeated: int = 0
    keys: int = 30
    values: int = 30
    noise: int = 6  # symbols

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, pairs=self.pairs, noise=self.noise)
        require_at_least(2, values=self.values)
        require_at_least(0, repeated=self.repeated)
        if 2 * self.repeated > self.pairs:
            raise SettingError("repeated", self.repeated, f"must be at most half of pairs={self.pairs}")
        if self.keys < (asked := self.pairs - self.repeated):
            raise SettingError("keys", self.keys, f"pairs={self.pairs} need {asked} different keys")
        if (shortest := min(self.min_length, *self.test_lengths)) < (tokens := 2 * self.pairs + asked):
            problem = f"they take {tokens} tokens, each key asked once, more than length {shortest}"
            raise SettingError("pairs", self.pairs, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        kinds = {"k": self.keys, "v": self.values, "~": self.noise}
        return tuple(f"{kind}{number}" for kind, count in kinds.items() for number in range(count))

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        asked = keys = different(self.keys, generator, count, self.pairs - self.repeated)
        answers = values = numbers(self.values, generator, count, self.pairs) + self.keys
        if self.repeated:
            order = different(self.pairs, generator, count, self.pairs)
            keys = torch.cat([asked, asked[:, : self.repeated]], 1).gather(1, order)  # (B, P)
            last = (torch.arange(1, self.pairs + 1) * (asked[:, :, None] == keys[:, None])).argmax(-1)
            answers = values.gather(1, last)  # (B, number of different keys)
        pairs = torch.stack([keys, values], 2).flatten(1)  # (B, 2 P)
        rest = length - 2 * self.pairs
        noise = numbers(self.noise, generator, count, rest) + self.keys + self.values
        positions = different(rest, generator, count, asked.shape[1])
        queries = noise.scatter(1, positions, asked)
        answers = torch.full_like(noise, IGNORED).scatter(1, positions, answers)
        return Examples(torch.cat([pairs, queries], 1), torch.cat([torch.full_like(pairs, IGNORED), answers], 1))

    def derived(self, shares: dict[str, float]) -> dict[str, float]:
        return {"accuracy_depth_min": min(share for name, share in shares.items() if name.startswith("accuracy_depth"))}

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        length = examples.tokens.shape[1]
        positions = torch.arange(length) - 2 * self.pairs
        quarter = (DEPTHS * positions).div(length - 2 * self.pairs, rounding_mode="floor")  # negative within the pairs
        depths = {f"depth_{i + 1}": (quarter == i).expand_as(examples.tokens) for i in range(DEPTHS)}
        keys = examples.tokens[:, : 2 * self.pairs : 2]
        twice = (examples.tokens[:, :, None] == keys[:, None]).sum(-1) == 2
        return depths | ({"repeated": twice & (positions >= 0)} if self.repeated else {})


@dataclass(frozen=True, kw_only=True)
class DistantRecall(Task):
    """Recall of facts from beyond the window, a chosen number of tokens later.

    An example is a document of several segments: a model reads model.context_length tokens at a time, and what it knows
    of the segments before is its memory, if any. Length is the gap, the tokens from a fact to its question, the same
    for all facts of an example. Noise stands before, between and after, so that a segment may end anywhere. A model
    that doesn't see a fact, but its question, is right in one of `values` answers.

    A fact, a key and its value, is one symbol, a=7, and so is the question, a?. What binds two symbols would have to be
    learned from pairs within the window alone, as no gradient comes from beyond, and wasn't in twice as many steps.
    """

    facts: int = 4
    keys: int = 12
    values: int = 10
    noise: int = 6  # symbols
    lead: int = 32  # tokens of noise before the first fact, at most

    in_segments = True
    metrics = (ACCURACY, EXACT)  # a window may hold some facts of an example, and not others

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, facts=self.facts, noise=self.noise)
        require_at_least(2, values=self.values)
        require_at_least(0, lead=self.lead)
        if self.keys < self.facts:
            raise SettingError("keys", self.keys, f"facts={self.facts} need as many different keys")
        if (nearest := min(self.min_length, *self.test_lengths)) < self.facts:
            raise SettingError("facts", self.facts, f"are asked {nearest} tokens later: must be at most as many")

    @property
    def symbols(self) -> tuple[str, ...]:
        keys = alphabet(self.keys)
        facts = (f"{key}={value}" for key in keys for value in range(self.values))
        return (*facts, *(f"{key}?" for key in keys), *(f"~{number}" for number in range(self.noise)))

    def tokens(self, length: int) -> int:
        return self.lead + length + self.facts

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        known = self.keys * self.values
        keys = different(self.keys, generator, count, self.facts)  # (B, F)
        facts = keys * self.values + numbers(self.values, generator, count, self.facts)
        tokens = numbers(self.noise, generator, count, self.tokens(length)) + known + self.keys
        positions = numbers(self.lead + 1, generator, count, 1) + torch.arange(self.facts)  # (B, F)
        tokens.scatter_(1, positions, facts).scatter_(1, positions + length, known + keys)
        return Examples(tokens, torch.full_like(tokens, IGNORED).scatter(1, positions + length, facts))
