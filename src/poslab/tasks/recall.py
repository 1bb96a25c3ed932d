"""Associative recall: what value stood beside this key? (MQAR)

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models", section 3: pairs of key and
value, then each key once more, which asks for its value. Here the keys come in noise, anywhere and in any order, so a
longer text puts the same four pairs further away. Length is the number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.errors import SettingError, require_at_least
from poslab.lazy import Tensor, torch
from poslab.tasks.base import IGNORED, Examples, Task, different, numbers

DEPTHS = 4


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Associative recall; its parts depth_1, ..., depth_4 are keys asked in the first, ..., last quarter of what
    follows the pairs."""

    pairs: int = 4
    keys: int = 30
    values: int = 30
    noise: int = 6  # symbols

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, pairs=self.pairs, noise=self.noise)
        require_at_least(2, values=self.values)
        if self.keys < self.pairs:
            raise SettingError("keys", self.keys, f"pairs={self.pairs} need as many different keys")
        if (shortest := min(self.min_length, *self.test_lengths)) < 3 * self.pairs:
            problem = f"they take {3 * self.pairs} tokens, each key asked once, more than length {shortest}"
            raise SettingError("pairs", self.pairs, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        kinds = {"k": self.keys, "v": self.values, "~": self.noise}
        return tuple(f"{kind}{number}" for kind, count in kinds.items() for number in range(count))

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        keys = different(self.keys, generator, count, self.pairs)
        values = numbers(self.values, generator, count, self.pairs) + self.keys
        pairs = torch.stack([keys, values], 2).flatten(1)  # (B, 2 P)
        rest = length - 2 * self.pairs
        noise = numbers(self.noise, generator, count, rest) + self.keys + self.values
        positions = different(rest, generator, count, self.pairs)
        queries = noise.scatter(1, positions, keys)
        answers = torch.full_like(noise, IGNORED).scatter(1, positions, values)
        return Examples(torch.cat([pairs, queries], 1), torch.cat([torch.full_like(pairs, IGNORED), answers], 1))

    def derived(self, shares: dict[str, float]) -> dict[str, float]:
        return {"accuracy_depth_min": min(share for name, share in shares.items() if name.startswith("accuracy_depth"))}

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        length = examples.tokens.shape[1]
        positions = torch.arange(length) - 2 * self.pairs
        quarter = (DEPTHS * positions).div(length - 2 * self.pairs, rounding_mode="floor")  # negative within the pairs
        return {f"depth_{i + 1}": (quarter == i).expand_as(examples.tokens) for i in range(DEPTHS)}
