"""Dense attention, written to be read: the oracle that every kernel must equal, in outputs and gradients.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of the relative tables.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from poslab.attention.blocks import WeightDropout, query_blocks
from poslab.positions import RelativeTerms, ScoreTile, Tables
from poslab.processors import values_are_unknown

_MANY_ROWS = 1024
NEAR = 128  # distances, up to which `kernels/banded.py` can compute their pairs by themselves


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
    first_key: int = 0  # of the tile

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
    null: Tensor | None = None  # (H,), the terms' own
    documents: Tensor | None = None  # (B, Tk), in a compiled graph alone: elsewhere each is a text of its own

    @property
    def parts(self) -> set[str]:
        """Names of what enters beside queries, keys and the causal mask, as `parts_of` returns them."""
        more = ("window", "first_key", "key_bias", "pairwise", "null", "documents")
        return parts_of(self.terms, **{name: getattr(self, name) for name in more})

    @property
    def values(self) -> Tensor | None:
        """Values of the relative terms, (R, Dh) or (H, R, Dh)."""
        return None if self.terms is None else self.terms.values

    def visible(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """Return the attention mask, (1 or B, 1, Tq, Tk) bool: True where the query sees the key."""
        seen = torch.ones(1, 1, query_length, key_length, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril(self.offset)
        if self.window is not None:
            seen = seen.triu(self.offset - self.window + 1).tril(self.offset + self.window - 1)
        if self.first_key is not None:
            seen = seen & (torch.arange(key_length, device=device) >= self.first_key[:, None, None, None])
        if self.documents is not None:
            query_documents = self.documents[:, self.offset : self.offset + query_length]
            seen = seen & (query_documents[:, None, :, None] == self.documents[:, None, None])
        return seen

    def keys_seen(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """Return how many keys each query sees by the mask, (1 or B, Tq) int64: the sums of `visible`."""
        if self.documents is not None:
            return self.visible(query_length, key_length, device).sum((1, 3))
        at = torch.arange(self.offset, self.offset + query_length, device=device)[None]
        reach = self.offset + query_length + key_length if self.window is None else self.window
        first = (at - reach + 1).clamp(min=0)
        if self.first_key is not None:
            first = torch.maximum(first, self.first_key[:, None])
        last = (at if self.causal else at + reach - 1).clamp(max=key_length - 1)
        return (last - first + 1).clamp(min=0)

    def rows(self, query_length: int, key_length: int) -> Tensor:
        """Return the row of the terms' tables for each pair, (1 or B, 1, Tq, Tk) int64."""
        assert self.terms is not None
        if self.pairwise is not None and self.pairwise.irregular:
            return self.terms.rows_of(self.pairwise.i - self.pairwise.j)
        return self.terms.row_indices(query_length, key_length, self.offset)[None, None]


def parts_of(terms: RelativeTerms | None, **more: object) -> set[str]:
    """Return the names of the tables that are given, and of `more` that isn't None.

    "many rows" is one of them where each query would have thousands of products with keys or queries by distance,
    "far rows" where tables tell apart more than the distances from 0 to `NEAR` at most, "bias that isn't linear" where
    there is one.
    """
    names = {name for name, part in more.items() if part is not None}
    if terms is None:
        return names
    tables = set(terms.tables)
    if torch.compiler.is_exporting():  # for any length, and by no kernel that asks for these two
        return names | tables
    many = bool(tables & {"keys", "queries"}) and terms.highest - terms.lowest >= _MANY_ROWS
    far = bool(tables) and not terms.lowest <= 0 < terms.highest <= NEAR
    curved = terms.bias is not None and not terms.linear
    named = {"many rows": many, "far rows": far, "bias that isn't linear": curved}
    return names | tables | {name for name, does in named.items() if does}


def for_queries(q: Tensor, *keys_and_values: Tensor) -> list[Tensor]:
    """Repeat keys and values (B, Hkv, Tk, Dh) for the heads of q (B, H, Tq, Dh), (B, H, Tk, Dh): H / Hkv of these, one
    after the other, have the same ones."""
    heads = q.shape[1]
    return [x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1) for x in keys_and_values]


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Disable autocast, for sums along the text and logarithms of positions; no-op on devices without autocast."""
    # The compiler of torch 2.11 can't trace the question; what it compiles for has autocast.
    is_known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if is_known else nullcontext()


def no_infinity(largest: Tensor) -> Tensor:
    """Replace -inf by 0, so that -inf less the largest of a row is -inf and never NaN."""
    return largest.masked_fill(largest == -math.inf, 0.0)


# Dense formula


def reference_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh).

    The formula is in `RelativeTerms`. A query that sees no key gets zeros.
    """
    factors = _dropout_factors(q, k, spec, dropout_p) if dropout_p > 0 else None
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()  # or the products would copy them, some twice
    weights = attention_weights(q, k, spec)  # (B, H, Tq, Tk)
    if factors is not None:
        weights = weights * factors
    out = weights.to(v.dtype) @ v  # (B, H, Tq, Dh)
    if spec.values is not None:  # no (Tq, Tk, Dh) tensor of looked-up values
        out = out + by_row(weights, spec).to(v.dtype) @ spec.values.to(v.dtype)
    return out


def by_row(weights: Tensor, spec: AttentionSpec) -> Tensor:
    """Sum weights (B, H, Tq, Tk) by row of the terms' tables, (B, H, Tq, R)."""
    assert spec.terms is not None
    rows = spec.rows(*weights.shape[-2:]).expand(weights.shape)
    size = (*weights.shape[:-1], spec.terms.highest - spec.terms.lowest + 1)
    return weights.new_zeros(size).scatter_add(-1, rows, weights)


def attention_weights(q: Tensor, k: Tensor, spec: AttentionSpec) -> Tensor:
    """Return the weights of keys k (B, H, Tk, Dh) for q (B, H, Tq, Dh), (B, H, Tq, Tk); zeros where none is seen."""
    seen = spec.visible(q.shape[-2], k.shape[-2], q.device)
    scores, null = pair_scores(q, k, spec, seen)
    scores = scores + hiding(seen, q.dtype)
    if null is not None:
        return torch.cat([scores, null], -1).softmax(-1)[..., :-1]
    # Where it is cheap to know that every query sees a key, it spares passes over all pairs; a GPU would be waited for.
    cheap = scores.device.type == "cpu" and not values_are_unknown()
    if cheap and (scores.detach().amax(-1) > -math.inf).all():
        return scores.softmax(-1)
    return softmax_or_zeros(scores)


def softmax_or_zeros(scores: Tensor) -> Tensor:
    """Return the softmax of scores (..., n), zeros where all are -inf, of which it would be NaN."""
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)


def hiding(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what hides pairs when it is added to scores: -inf where they are not seen; faster than filling them."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, -math.inf)


def pair_scores(q: Tensor, k: Tensor, spec: AttentionSpec, seen: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return scores before the softmax of q (B, H, Tq, Dh) and k (B, H, Tk, Dh), (B, H, Tq, Tk), and null scores.

    The first are `score` of `RelativeTerms`, the bias by distance included, plus `key_bias`, then changed by
    `score_mod`; the second, if there are any, `null` of the terms and of `score_mod`, (B, H, Tq, 1). Without a null
    score each query's biases are taken less the largest among the keys that it sees: a softmax doesn't change when one
    number is subtracted from a whole row, and beside small biases the products of queries and keys keep their digits.

    seen: (1 or B, 1, Tq, Tk) bool, from `AttentionSpec.visible`.
    """
    query_length, key_length = q.shape[-2], k.shape[-2]
    scaled = q * spec.scale
    scores = scaled @ k.transpose(-2, -1)
    null = None if spec.null is None else spec.null[:, None, None].expand(*q.shape[:3], 1).to(q.dtype)
    terms, pairwise = spec.terms, spec.pairwise
    if terms is not None:
        rows = spec.rows(query_length, key_length)
        if terms.keys is not None:
            products = scaled @ terms.keys.to(q.dtype).transpose(-2, -1)  # (B, H, Tq, R): q_i . keys[r]
            scores = scores + products.gather(-1, rows.expand(scores.shape))
        if terms.queries is not None:
            products = k @ (terms.queries * spec.scale).to(k.dtype).transpose(-2, -1)  # (B, H, Tk, R): queries[r] . k_j
            scores = scores + products.gather(-1, rows.expand(scores.shape).mT).mT
    biases = []
    if spec.key_bias is not None:
        # Less a 0 with the gradient of the query's own key, which makes each row of gradients sum to 0: else their
        # rounding would pile up in a bias that is a sum along the text.
        own_key = torch.arange(spec.offset, spec.offset + query_length, device=q.device).clamp(0, key_length - 1)
        own_bias = no_infinity(spec.key_bias[..., own_key, None])  # (B, H, Tq, 1)
        zero = own_bias - own_bias.detach()
        biases = [spec.key_bias[..., None, :] - zero]
        null = None if null is None else null - zero.to(q.dtype)
    if terms is not None and terms.bias is not None:
        biases = [terms.bias_of(rows.squeeze(1)), *biases]  # (1 or B, H, Tq, Tk)
    subtracted: Any = 0
    for bias in biases:
        largest: Any = 0.0  # because beside a null score a number subtracted from all others counts
        if null is None:  # beside 1e4 added to all, scores would lose their digits
            largest = no_infinity(bias.detach().masked_fill(~seen, -math.inf).amax(-1, keepdim=True))
        scores = scores + (bias - largest).to(q.dtype)
        subtracted = subtracted + largest
    if pairwise is not None and pairwise.score_mod is not None:
        i, j, state = pairwise.i, pairwise.j, pairwise.token_state
        query_index = torch.arange(spec.offset, spec.offset + query_length, device=q.device)
        more = (subtracted, spec.offset, pairwise.first_key, null is not None)
        tile = ScoreTile(scores, q, k, state, i, j, seen, spec.scale, spec.causal, query_index, *more)
        scores = pairwise.score_mod(pairwise.tables, tile)
        if scores.shape[-1] > key_length:
            scores, null_score = scores.split([key_length, 1], -1)
            null = null_score if null is None else torch.logaddexp(null, null_score)
    return scores, null


def with_null(out: Tensor, log_sum: Tensor, null: Tensor) -> None:
    """Let null scores (..., Tq, 1) take their part of attention's output (..., Tq, Dh), in place.

    log_sum: (..., Tq, 1), the log-sum-exp of all other scores, which is made that of all; both are in powers of two.
    """
    total = torch.logaddexp2(log_sum, null)
    out.mul_((log_sum - total).exp2_().to(out.dtype))
    log_sum.copy_(total)


@torch.compiler.disable
def _dropout_factors(q: Tensor, k: Tensor, spec: AttentionSpec, dropout_p: float) -> Tensor:
    """Return the dropout factors (B, H, Tq, Tk) that kernels draw block by block; zeros where a block sees no key."""
    dropout = WeightDropout(dropout_p, q.device)
    factors = q.new_zeros(*q.shape[:3], k.shape[-2])
    for block in query_blocks(q.shape[-2], k.shape[-2], spec.offset, spec.causal, spec.window):
        block_factors = factors[..., block.rows, block.columns]
        block_factors.copy_(dropout.factors(block, block_factors))
    return factors
