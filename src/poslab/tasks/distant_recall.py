"""Recall beyond the window: pairs of key and value, and a chosen number of tokens after them each key again.

As in `recall` (MQAR: Arora et al. 2023), a key asks for the value that stood beside it. But an example is a document of
several segments: a model reads it model.context_length tokens at a time, and what it knows of the segments before is
its memory, if it has any. Length is the gap, the tokens from a key to where it is asked, the same for all pairs of an
example. Symbols of noise stand before, between and after, so that a segment may end anywhere, within a pair as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poslab.errors import SettingError, require_at_least
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task, different, numbers
from poslab.tasks.metric import ACCURACY, EXACT

if TYPE_CHECKING:
    from torch import Generator


@dataclass(frozen=True, kw_only=True)
class DistantRecall(Task):
    pairs: int = 4
    keys: int = 30
    values: int = 30
    noise: int = 6  # symbols
    lead: int = 32  # tokens of noise before the first pair, at most

    in_segments = True
    metrics = (ACCURACY, EXACT)  # a window may hold some pairs of an example, and not others

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, pairs=self.pairs, noise=self.noise)
        require_at_least(2, values=self.values)
        require_at_least(0, lead=self.lead)
        if self.keys < self.pairs:
            raise SettingError("keys", self.keys, f"pairs={self.pairs} need as many different keys")
        if (nearest := min(self.min_length, *self.test_lengths)) < 2 * self.pairs:
            raise SettingError("pairs", self.pairs, f"they take {2 * self.pairs} tokens, more than a gap of {nearest}")

    @property
    def symbols(self) -> tuple[str, ...]:
        kinds = {"k": self.keys, "v": self.values, "~": self.noise}
        return tuple(f"{kind}{number}" for kind, count in kinds.items() for number in range(count))

    def tokens(self, length: int) -> int:
        return self.lead + length + 2 * self.pairs - 1

    def batch(self, generator: Generator, count: int, length: int) -> Examples:
        keys = different(self.keys, generator, count, self.pairs)
        values = numbers(self.values, generator, count, self.pairs) + self.keys
        tokens = numbers(self.noise, generator, count, self.tokens(length)) + self.keys + self.values
        places = numbers(self.lead + 1, generator, count, 1) + 2 * torch.arange(self.pairs)  # (B, P), of the keys
        tokens.scatter_(1, places, keys).scatter_(1, places + 1, values).scatter_(1, places + length, keys)
        return Examples(tokens, torch.full_like(tokens, IGNORED).scatter(1, places + length, values))
