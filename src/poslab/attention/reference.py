"""Dense attention, written to be read: the oracle that every other backend must equal, in outputs and gradients.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of the relative tables.
"""

import math

import torch
from torch import Tensor

from poslab.attention.kernels.blocks import query_blocks
from poslab.attention.kernels.dropout import WeightDropout
from poslab.attention.kernels.relative import no_infinity
from poslab.attention.spec import AttentionSpec
from poslab.positions import ScoreTile


def reference_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh)."""
    factors = _dropout_factors(q, k, spec, dropout_p) if dropout_p > 0 else None
    return dense_attention(q, k, v, spec, factors)


def dense_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, factors: Tensor | None = None) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh); the formula is in `RelativeTerms`.

    factors: (B, H, Tq, Tk), of the weights. A query that sees no key gets zeros.
    """
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()  # or the products would copy them, some twice
    weights = attention_weights(q, k, spec)  # (B, H, Tq, Tk)
    if factors is not None:
        weights = weights * factors
    out = weights.to(v.dtype) @ v  # (B, H, Tq, Dh)
    if spec.values is not None:  # no (Tq, Tk, Dh) tensor of looked-up values
        out = out + by_row(weights, spec).to(v.dtype) @ spec.values.to(v.dtype)
    return out


def by_row(weights: Tensor, spec: AttentionSpec) -> Tensor:
    """(B, H, Tq, Tk) -> (B, H, Tq, R): how much of each query's attention falls on each row of the terms' tables."""
    assert spec.terms is not None
    rows = spec.rows(*weights.shape[-2:]).expand(weights.shape)
    size = (*weights.shape[:-1], spec.terms.highest - spec.terms.lowest + 1)
    return weights.new_zeros(size).scatter_add(-1, rows, weights)


def attention_weights(q: Tensor, k: Tensor, spec: AttentionSpec) -> Tensor:
    """q (B, H, Tq, Dh), k (B, H, Tk, Dh) -> (B, H, Tq, Tk); the rows of queries that see no key are zeros."""
    seen = spec.visible(q.shape[-2], k.shape[-2], q.device)
    hidden = torch.zeros_like(seen, dtype=q.dtype).masked_fill_(~seen, -math.inf)
    scores = pair_scores(q, k, spec, seen) + hidden
    if _every_query_sees_a_key(scores):
        return scores.softmax(-1)
    nothing = (scores == -math.inf).all(-1, keepdim=True)  # their softmax would be NaN
    return scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)


def _every_query_sees_a_key(scores: Tensor) -> bool:
    """Whether that is known at once, which spares passes over all pairs; a GPU, or a compiler, would have to wait."""
    if torch.compiler.is_compiling() or scores.device.type != "cpu":
        return False
    return bool((scores.detach().amax(-1) > -math.inf).all())


def pair_scores(q: Tensor, k: Tensor, spec: AttentionSpec, seen: Tensor) -> Tensor:
    """(B, H, Tq, Tk): less some number for each query, which no softmax notices."""
    query_length, key_length = q.shape[-2], k.shape[-2]
    scaled = q * spec.scale
    scores = scaled @ k.transpose(-2, -1)
    terms, pairwise = spec.terms, spec.pairwise
    if terms is not None:
        rows = spec.rows(query_length, key_length)
        if terms.keys is not None:
            products = scaled @ terms.keys.to(q.dtype).transpose(-2, -1)  # (B, H, Tq, R): q_i . keys[r]
            scores = scores + products.gather(-1, rows.expand(scores.shape))
        if terms.queries is not None:
            products = k @ (terms.queries * spec.scale).to(k.dtype).transpose(-2, -1)  # (B, H, Tk, R): queries[r] . k_j
            scores = scores + products.gather(-1, rows.expand(scores.shape).mT).mT
    if terms is not None and terms.bias is not None:
        scores = scores + _less_largest(terms.bias_of(rows.squeeze(1)), seen).to(q.dtype)  # (1 or B, H, Tq, Tk)
    if spec.key_bias is not None:
        scores = scores + _less_largest(spec.key_bias[..., None, :], seen).to(q.dtype)
    place = torch.arange(spec.offset, spec.offset + query_length, device=q.device)  # of each query
    if pairwise is not None and pairwise.scores is not None:
        i, j, token_state = pairwise.i, pairwise.j, pairwise.token_state
        scores = pairwise.scores(
            pairwise.tables, ScoreTile(scores, q, k, token_state, i, j, seen, spec.scale, spec.causal, place)
        )
    return scores


def _less_largest(bias: Tensor, seen: Tensor) -> Tensor:
    """Less the largest that the query sees: beside 1e4 that is added to all of them, scores would lose their digits."""
    largest = bias.detach().masked_fill(~seen, -math.inf).amax(-1, keepdim=True)
    return bias - no_infinity(largest)


@torch.compiler.disable
def _dropout_factors(q: Tensor, k: Tensor, spec: AttentionSpec, dropout_p: float) -> Tensor:
    """(B, H, Tq, Tk): the factors that other kernels draw block by block; zeros where a block sees no key."""
    dropout = WeightDropout(dropout_p, q.device)
    factors = q.new_zeros(*q.shape[:3], k.shape[-2])
    for block in query_blocks(q.shape[-2], k.shape[-2], spec.offset, spec.causal, spec.window):
        of_block = factors[..., block.rows, block.columns]
        of_block.copy_(dropout.factors(block, of_block))
    return factors
