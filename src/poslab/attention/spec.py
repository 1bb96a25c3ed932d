"""What attention is asked to compute, beside its queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poslab.attention.kernels.blocks import Block, query_blocks
from poslab.positions import RelativeTerms, ScoreTile

if TYPE_CHECKING:
    from poslab.positions.base import Tables


@dataclass(frozen=True, eq=False)
class Pairwise:
    """What is known of the tokens where distances along the text don't say it all.

    scores: the scheme's hook, called with `tables`, whose gradients it has; None: the scores remain as they are.
    irregular: positions aren't consecutive, so that relative terms go by them and not by places in the text.
    """

    query_positions: Tensor  # (Tq,) or (B, Tq)
    key_positions: Tensor  # (Tk,) or (B, Tk)
    token_state: Tensor | None = None  # (B, H, Tk, E)
    scores: Callable[[Tables, ScoreTile], Tensor] | None = None
    tables: Tables = field(default_factory=dict)
    irregular: bool = False

    @property
    def i(self) -> Tensor:
        """(1, 1, Tq, 1) or (B, 1, Tq, 1): the positions of the queries."""
        return torch.atleast_2d(self.query_positions)[:, None, :, None]

    @property
    def j(self) -> Tensor:
        """(1, 1, 1, Tk) or (B, 1, 1, Tk): the positions of the keys."""
        return torch.atleast_2d(self.key_positions)[:, None, None]


@dataclass(frozen=True, eq=False)
class AttentionSpec:
    """The arguments of `attend` that decide which scores its softmax is taken of."""

    terms: RelativeTerms | None
    causal: bool
    offset: int
    scale: float
    window: int | None = None  # that of the terms included
    first_key: Tensor | None = None  # (B,)
    key_bias: Tensor | None = None  # (B, H, Tk)
    pairwise: Pairwise | None = None

    @property
    def plain(self) -> bool:
        """Whether only queries, keys, and which of them come first decide the scores."""
        more = (self.terms, self.window, self.first_key, self.key_bias, self.pairwise)
        return all(part is None for part in more)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that gradients may be wanted of."""
        named = () if self.terms is None else self.terms.tables.values()
        hook = () if self.pairwise is None else (self.pairwise.token_state, *self.pairwise.tables.values())
        return tuple(tensor for tensor in (*named, self.key_bias, *hook) if tensor is not None)

    def with_tensors(self, tensors: Iterable[Tensor]) -> AttentionSpec:
        """The same with other tensors in the place of `tensors`, in their order."""
        rest = iter(tensors)
        tables: dict[str, Any] = {} if self.terms is None else {name: next(rest) for name in self.terms.tables}
        terms = self.terms and replace(self.terms, **tables)
        key_bias = None if self.key_bias is None else next(rest)
        pairwise = self.pairwise
        if pairwise is not None:
            token_state = None if pairwise.token_state is None else next(rest)
            pairwise = replace(pairwise, token_state=token_state, tables={name: next(rest) for name in pairwise.tables})
        return replace(self, terms=terms, key_bias=key_bias, pairwise=pairwise)

    @property
    def values(self) -> Tensor | None:
        """(R, Dh) or (H, R, Dh): those of the terms."""
        return None if self.terms is None else self.terms.values

    def blocks(self, query_length: int, key_length: int) -> Iterator[Block]:
        """The blocks of all queries that see a key."""
        return query_blocks(query_length, key_length, self.offset, self.causal, self.window)

    def of(self, block: Block) -> AttentionSpec:
        """The same for the queries and keys of one block."""
        pairwise = self.pairwise and replace(
            self.pairwise,
            query_positions=self.pairwise.query_positions[..., block.rows],
            key_positions=self.pairwise.key_positions[..., block.columns],
            token_state=None if self.pairwise.token_state is None else self.pairwise.token_state[:, :, block.columns],
        )
        first_key = None if self.first_key is None else self.first_key - block.first_key
        key_bias = None if self.key_bias is None else self.key_bias[..., block.columns]
        return replace(self, offset=block.position, first_key=first_key, key_bias=key_bias, pairwise=pairwise)

    def visible(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """(1, 1, Tq, Tk) bool, or (B, 1, Tq, Tk) with first_key: which keys a query sees."""
        seen = torch.ones(1, 1, query_length, key_length, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril(self.offset)
        if self.window is not None:
            seen = seen.triu(self.offset - self.window + 1).tril(self.offset + self.window - 1)
        if self.first_key is not None:
            seen = seen & (torch.arange(key_length, device=device) >= self.first_key[:, None, None, None])
        return seen

    def rows(self, query_length: int, key_length: int) -> Tensor:
        """(1 or B, 1, Tq, Tk) int64: the row of the terms' tables for each pair."""
        assert self.terms is not None
        if self.pairwise is not None and self.pairwise.irregular:
            return self.terms.rows_of(self.pairwise.i - self.pairwise.j)
        return self.terms.row_indices(query_length, key_length, self.offset)[None, None]


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Where sums along the text and logarithms of positions are computed; nothing where there is no autocast at all."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()
