"""Recall beyond the window: facts, and each of them asked for a chosen number of tokens later.

Associative recall as in `recall` (Arora et al. 2023), but an example is a document of several segments: a model reads
model.context_length tokens at a time, and what it knows of the segments before is its memory, if any. Length is the
gap, the tokens from a fact to its question, the same for all facts of an example. Noise stands before, between and
after, so that a segment may end anywhere.

A fact, a key and its value, is one symbol, a=7, and so is the question, a?. What binds two symbols would have to be
learned from pairs within the window alone, as no gradient comes from beyond, and wasn't in twice as many steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, different, numbers
from poslab.tasks.metric import ACCURACY, EXACT


@dataclass(frozen=True, kw_only=True)
class DistantRecall(Task):
    """Recall of facts beyond the window; a model that doesn't see a fact, but its question, is right in one of `values`
    answers."""

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
