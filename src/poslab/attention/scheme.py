"""A position scheme at work: its hooks, put in the order in which attention needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poslab.attention.dispatch import attend
from poslab.attention.reference import attention_weights, pair_scores
from poslab.attention.spec import AttentionSpec, Pairwise, without_autocast
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme, RelativeTerms, ScoreTile
from poslab.positions.checks import check_once, check_sizes

if TYPE_CHECKING:
    from poslab.positions.base import Tables


@dataclass(frozen=True, eq=False)
class PositionIds:
    """The positions of some tokens, (T,), or (B, T) where rows differ.

    irregular: they are not consecutive: a distance along the text is no difference of positions.
    """

    positions: Tensor
    irregular: bool = False

    @classmethod
    def given(cls, positions: Tensor) -> PositionIds:
        """Those of somebody who knows them. Raises SettingError for what are no positions."""
        whole = not (positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool)
        if positions.dim() not in (1, 2) or not whole or not positions.numel() or positions.min() < 0:
            form = f"{list(positions.shape)} {positions.dtype}".replace("torch.", "")
            raise SettingError("positions", form, "must be whole numbers from 0 on, (T,) or (B, T)")
        return cls(positions.long(), irregular=bool((positions.diff() != 1).any()))

    def last(self, count: int) -> PositionIds:
        """Those of the last so many tokens."""
        return replace(self, positions=self.positions[..., -count:])

    def check(self, batch: int, length: int) -> None:
        """Raises SettingError where these are not the positions of so many texts, each so long."""
        *rows, given = self.positions.shape
        if given != length:
            raise SettingError("positions", [*rows, given], f"must be one for each of the {length} tokens")
        if rows and rows[0] != batch:
            raise SettingError("positions", f"{rows[0]} rows", f"must be one row, or one for each of the {batch} texts")

    def distances(self, causal: bool) -> range:
        """All distances between the positions of a query and of a key that it sees."""
        reach = self.positions.shape[-1]
        if self.irregular:
            reach = int(self.positions.max() - self.positions.min()) + 1
        falling = self.irregular and bool((self.positions.diff() < 0).any())
        return range(0 if causal and not falling else 1 - reach, reach)

    def map(self, hook: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
        """A scheme's hook on x (B, ..., T, n).

        A hook takes positions (T,) and each token by itself: where rows have positions of their own, all their tokens
        are handed to it as one row of B T.
        """
        if self.positions.dim() == 1:
            return hook(x, self.positions)
        row = x.movedim(0, -3).flatten(-3, -2)[None]  # (1, ..., B T, n)
        return hook(row, self._one_row)[0].unflatten(-2, self.positions.shape).movedim(-3, 0)

    @cached_property
    def _one_row(self) -> Tensor:
        """(B T,): the same tensor at every call, by which schemes know what they have computed in this pass."""
        return self.positions.flatten()


@dataclass(frozen=True, eq=False)
class SchemeLayer:
    """A scheme in one layer of a model, for the tokens of one pass.

    key_places: of the keys, where there are more of them than queries, which are the last; None: those of the queries.
    """

    scheme: PositionScheme
    tables: Tables
    shape: ModelShape
    layer: int
    terms: RelativeTerms | None
    position_ids: PositionIds
    key_position_ids: PositionIds | None = None

    def enter(self, q: Tensor, k: Tensor, x: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """q (B, H, Tq, Dh) and k (B, H, Tk, Dh) as they enter attention, and the marks (B, H, Tk, E) that x (B, Tk, D)
        brings along."""
        q = self.position_ids.map(partial(self.scheme.query, self.tables, self.layer), q)
        k = (self.key_position_ids or self.position_ids).map(partial(self.scheme.key, self.tables, self.layer), k)
        if not self.scheme.overrides("token_state"):
            return q, k, None
        if x is None:
            raise SettingError(
                "x", None, f"{type(self.scheme).__name__} looks at what enters attention: give x (B, T, D)"
            )
        with without_autocast(x.device):
            return (
                q,
                k,
                self.scheme.token_state(self.tables, self.layer, x.to(torch.promote_types(x.dtype, torch.float32))),
            )

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        token_state: Tensor | None,
        key_position_ids: PositionIds | None = None,
        **settings: Any,
    ) -> Tensor:
        """Attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), as `enter` left them -> (B, H, Tq, Dh).

        marks (B, H, Tk, E) and key_places: of the keys; the settings are those of `poslab.attention.attend`.
        """
        settings |= self._content(token_state, key_position_ids)
        return attend(q, k, v, self.terms, causal=self.shape.causal, **settings)

    def attend_from(
        self, first: int, q: Tensor, k: Tensor, v: Tensor, token_state: Tensor | None, **settings: Any
    ) -> Tensor:
        """Attention of the queries from place `first` on -> (B, H, Tq - first, Dh).

        The last query stands at the last key; the rest is as in `attend`.
        """
        settings["offset"] = k.shape[-2] - q.shape[-2] + first
        if first == 0:
            return self.attend(q, k, v, token_state, **settings)
        queries = replace(
            self,
            position_ids=self.position_ids.last(q.shape[-2] - first),
            key_position_ids=self.key_position_ids or self.position_ids,
        )
        return queries.attend(q[:, :, first:], k, v, token_state, **settings)

    def terms_within(self, length: int) -> RelativeTerms | None:
        """The layer's terms for all distances within so many tokens, also beyond those of the pass."""
        terms = self.scheme.relative(self.tables, self.shape, self.layer, range(length))
        return terms and terms.to(self.position_ids.positions.device)

    def weights(self, q: Tensor, k: Tensor, token_state: Tensor | None) -> Tensor:
        """The weights (B, H, T, T) of self-attention, rows are queries; the arguments are those of `attend`."""
        window = None if self.terms is None else self.terms.window
        content = self._content(token_state)
        spec = AttentionSpec(self.terms, self.shape.causal, 0, self.shape.head_dim**-0.5, window, None, **content)
        return attention_weights(q, k, spec)

    def tile(self, q: Tensor, k: Tensor, token_state: Tensor | None) -> ScoreTile:
        """All pairs of self-attention, as the scheme's `score_mod` gets them; the arguments are those of `attend`."""
        given: list[ScoreTile] = []

        def keep(tables: Tables, tile: ScoreTile) -> Tensor:
            given.append(tile)
            return tile.scores

        positions, irregular = self.position_ids.positions, self.position_ids.irregular
        pairwise = Pairwise(positions, positions, token_state, keep, {}, irregular)
        spec = AttentionSpec(self.terms, self.shape.causal, 0, self.shape.head_dim**-0.5, pairwise=pairwise)
        pair_scores(q, k, spec, spec.visible(q.shape[-2], k.shape[-2], q.device))
        return given[0]

    def _content(self, token_state: Tensor | None, key_position_ids: PositionIds | None = None) -> dict[str, Any]:
        """What `attend` must be told beside the terms: `key_bias` and `pairwise`, where there are any."""
        keys = key_position_ids or self.key_position_ids or self.position_ids
        irregular = self.terms is not None and (self.position_ids.irregular or keys.irregular)
        key_bias = None
        if token_state is not None:
            with without_autocast(token_state.device):
                key_bias = self.scheme.key_bias(self.tables, self.shape, self.layer, token_state)
        scores = None
        if key_bias is None and self.scheme.overrides("score_mod"):
            scores = self._scores
        if scores is None and not irregular:
            return {} if key_bias is None else {"key_bias": key_bias}
        tables = {} if scores is None else self.tables
        pairwise = Pairwise(self.position_ids.positions, keys.positions, token_state, scores, tables, irregular)
        return {"key_bias": key_bias, "pairwise": pairwise}

    def _scores(self, tables: Tables, tile: ScoreTile) -> Tensor:
        return self.scheme.score_mod(tables, self.layer, tile)


def _check_arguments(
    scheme: PositionScheme, q: Tensor, k: Tensor, v: Tensor, x: Tensor | None, layer: int, num_layers: int
) -> None:
    """Raises SettingError for the first that doesn't fit the others."""
    if q.dim() != 4:
        raise SettingError("q", list(q.shape), "must be (B, H, T, Dh)")
    if k.shape != q.shape:
        raise SettingError("k", list(k.shape), f"must be as q, {list(q.shape)}: this is self-attention")
    if v.shape[:-1] != q.shape[:-1]:  # its width may be another
        raise SettingError("v", list(v.shape), f"must be as q, {list(q.shape)}, but for its width")
    batch, heads, length, head_dim = q.shape
    fitting = (batch, length, heads * head_dim)
    if x is not None and x.shape != fitting and scheme.overrides("token_state"):
        raise SettingError("x", list(x.shape), f"must be (B, T, H Dh) = {list(fitting)}")
    if not 0 <= layer < num_layers:
        raise SettingError("layer", layer, f"must be from 0 to {num_layers - 1}, by num_layers={num_layers}")


def scheme_attention(
    scheme: PositionScheme,
    tables: Tables,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    x: Tensor | None = None,
    layer: int = 0,
    num_layers: int = 1,
    positions: Tensor | None = None,
    causal: bool = True,
    dropout_p: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """Self-attention of q, k, v (B, H, T, Dh) with everything that a scheme does in one layer -> (B, H, T, Dh).

    For models of one's own: q, k and v as the projections leave them; what the scheme does to the embeddings (`embed`)
    is the model's part.

    tables: as `scheme.tables(shape)` made them, for `num_layers` layers of H heads and an embedding of H * Dh.
    x: (B, T, D), what entered the projections, for schemes that look at it.
    positions: (T,) or (B, T) whole numbers; None: 0, 1, 2, ...
    dropout_p, backend: as in `attend`.

    Raises SettingError for arguments that don't fit together, for what the scheme can't do: more positions than it
    knows, x missing; and, at the first call, for tables of other names than the scheme's and where a hook gives
    something of another shape than it must.
    """
    _check_arguments(scheme, q, k, v, x, layer, num_layers)
    _, heads, length, head_dim = q.shape
    position_ids = (
        PositionIds(torch.arange(length, device=q.device))
        if positions is None
        else PositionIds.given(positions.to(q.device))
    )
    position_ids.check(*q.shape[::2])
    last = length if positions is None else int(position_ids.positions.max()) + 1
    shape = ModelShape(max(length, last), heads * head_dim, num_layers, heads, causal)
    if not torch.compiler.is_compiling():
        check_sizes(scheme, shape)
    longest = scheme.max_length(shape)
    if longest is not None and last > longest:
        raise SettingError("positions", f"up to {last - 1}", f"this position scheme knows {longest} positions, no more")
    if not torch.compiler.is_compiling():
        check_once(scheme, tables, shape, layer)
    terms = scheme.relative(tables, shape, layer, position_ids.distances(causal))
    own = SchemeLayer(scheme, tables, shape, layer, terms and terms.to(q.device), position_ids)
    q, k, token_state = own.enter(q, k, x)
    return own.attend(q, k, v, token_state, dropout_p=dropout_p, backend=backend)
