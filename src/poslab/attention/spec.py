"""The specification of attention beside its queries, keys and values, which every backend computes alike.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of a relative table, E numbers of a token's state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from poslab.positions import RelativeTerms, ScoreTile

if TYPE_CHECKING:
    from poslab.positions.base import Tables


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Positions and states of the tokens, for scores that distances along the text don't decide.

    score_mod: the scheme's hook, called with `tables`, which get gradients through it; None: scores stay as they are.
    irregular: positions aren't consecutive, so that relative terms go by positions and not by indices in the text.
    """

    query_positions: Tensor  # (Tq,) or (B, Tq)
    key_positions: Tensor  # (Tk,) or (B, Tk)
    token_state: Tensor | None = None  # (B, H, Tk, E)
    score_mod: Callable[[Tables, ScoreTile], Tensor] | None = None
    tables: Tables = field(default_factory=dict)
    irregular: bool = False

    @property
    def i(self) -> Tensor:
        """Positions of the queries, (1, 1, Tq, 1) or (B, 1, Tq, 1)."""
        return torch.atleast_2d(self.query_positions)[:, None, :, None]

    @property
    def j(self) -> Tensor:
        """Positions of the keys, (1, 1, 1, Tk) or (B, 1, 1, Tk)."""
        return torch.atleast_2d(self.key_positions)[:, None, None]


@dataclass(frozen=True, eq=False)
class AttentionSpec:
    """Arguments of `attend` that decide the scores under its softmax."""

    terms: RelativeTerms | None
    causal: bool
    offset: int
    scale: float
    window: int | None = None  # the smaller of the caller's and the terms' own
    first_key: Tensor | None = None  # (B,)
    key_bias: Tensor | None = None  # (B, H, Tk)
    pairwise: Pairwise | None = None

    @property
    def plain(self) -> bool:
        """True if only queries, keys and the causal mask decide the scores."""
        more = (self.terms, self.window, self.first_key, self.key_bias, self.pairwise)
        return all(part is None for part in more)

    @property
    def values(self) -> Tensor | None:
        """Values of the relative terms, (R, Dh) or (H, R, Dh)."""
        return None if self.terms is None else self.terms.values

    def visible(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """Return the attention mask, (1, 1, Tq, Tk) bool, or (B, 1, Tq, Tk) with first_key: True where it sees."""
        seen = torch.ones(1, 1, query_length, key_length, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril(self.offset)
        if self.window is not None:
            seen = seen.triu(self.offset - self.window + 1).tril(self.offset + self.window - 1)
        if self.first_key is not None:
            seen = seen & (torch.arange(key_length, device=device) >= self.first_key[:, None, None, None])
        return seen

    def rows(self, query_length: int, key_length: int) -> Tensor:
        """Return the row of the terms' tables for each pair, (1 or B, 1, Tq, Tk) int64."""
        assert self.terms is not None
        if self.pairwise is not None and self.pairwise.irregular:
            return self.terms.rows_of(self.pairwise.i - self.pairwise.j)
        return self.terms.row_indices(query_length, key_length, self.offset)[None, None]


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Disable autocast, for sums along the text and logarithms of positions; no-op on devices without autocast."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def no_infinity(largest: Tensor) -> Tensor:
    """Replace -inf by 0, so that -inf less the largest of a row is -inf and never NaN."""
    return largest.masked_fill(largest == -math.inf, 0.0)
