"""Sampling of the next token: temperature, the likeliest tokens, and a generator for each row.

B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of the next token from the logits. Raises SettingError for values out of range.

    temperature: divides the logits; 0 takes the likeliest token.
    top_k: only the k likeliest tokens.
    top_p: of those, only the smallest set of likeliest tokens that holds this share of the probability, at least one
        (nucleus sampling, Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        require_at_least(0, temperature=self.temperature)
        require_at_least(1, top_k=self.top_k)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SettingError("top_p", self.top_p, "must be above 0 and at most 1")

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Draw token ids (B,) from logits (B, V), on their device, with a generator on the CPU for each row."""
        if self.temperature == 0:
            return logits.max(-1).indices  # argmax() takes three times as long
        k = min(self.top_k or logits.shape[-1], logits.shape[-1])
        ids = None
        if k < logits.shape[-1]:
            logits, ids = logits.topk(k)  # (B, k), the likeliest first
        elif self.top_p is not None:
            logits, ids = logits.sort(descending=True)
        # Double precision and a maximum of 0, so that even the smallest temperature makes no NaN.
        logits = (logits - logits.amax(-1, keepdim=True)).double()
        probabilities = (logits / self.temperature).softmax(-1)
        below = probabilities.cumsum(-1)  # (B, k)
        if self.top_p is not None and self.top_p < 1:
            likelier = below - probabilities  # the probability of all tokens before this one
            below = probabilities.masked_fill(likelier >= self.top_p, 0.0).cumsum(-1)
        uniform = torch.cat([torch.rand(1, dtype=torch.float64, generator=generator) for generator in generators])
        # The first token below whose end of the sum the number falls; it is less than the sum of all, as uniform < 1.
        chosen = torch.searchsorted(below, uniform.to(below.device)[:, None] * below[:, -1:], right=True)  # (B, 1)
        return (chosen if ids is None else ids.gather(-1, chosen)).squeeze(-1)


def generator_of(seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    """Return a generator by its seed, or the given one. Raises SettingError for both at once."""
    require_at_least(0, seed=seed)
    if seed is None:
        return generator
    if generator is not None:
        raise SettingError("seed", seed, "can't be given beside a generator")
    return torch.Generator().manual_seed(seed)


def row_generators(generator: torch.Generator | None, rows: int) -> list[torch.Generator]:
    """Seed a generator for each row from `generator` in turn, so that a row draws the same whatever rows follow it."""
    seeds = [int(torch.randint(2**62, (), generator=generator)) for _ in range(rows)]
    return [torch.Generator().manual_seed(seed) for seed in seeds]
