"""Dense attention, written to be read: the oracle that every other backend must equal, in outputs and gradients.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of the relative tables.
"""

import math

import torch
from torch import Tensor

from poslab.attention.blocks import query_blocks
from poslab.attention.dropout import WeightDropout
from poslab.attention.relative import no_infinity
from poslab.positions import RelativeTerms


def visible(
    query_length: int,
    key_length: int,
    offset: int,
    device: torch.device | None = None,
    *,
    window: int | None = None,
    first_key: Tensor | None = None,
) -> Tensor:
    """(Tq, Tk) bool, or (B, 1, Tq, Tk) with first_key: which keys a causal query sees; the rest as in `attend`."""
    seen = torch.ones(query_length, key_length, dtype=torch.bool, device=device).tril(offset)
    if window is not None:
        seen = seen.triu(offset - window + 1)
    if first_key is not None:
        seen = seen & (torch.arange(key_length, device=device) >= first_key[:, None, None, None])
    return seen


def attention_weights(
    q: Tensor,
    k: Tensor,
    terms: RelativeTerms | None,
    *,
    causal: bool,
    offset: int,
    scale: float,
    window: int | None = None,
    first_key: Tensor | None = None,
) -> Tensor:
    """q (B, H, Tq, Dh), k (B, H, Tk, Dh) -> (B, H, Tq, Tk); the rows of queries that see no key are zeros."""
    query_length, key_length = q.shape[-2], k.shape[-2]
    scores = q @ k.transpose(-2, -1)  # (B, H, Tq, Tk)
    if terms is not None and terms.keys is not None:
        rows = terms.row_indices(query_length, key_length, offset).expand(scores.shape)  # (Tq, Tk) -> (B, H, Tq, Tk)
        by_row = q @ terms.keys.to(q.dtype).transpose(-2, -1)  # (B, H, Tq, R): q_i . keys[r]
        scores = scores + by_row.gather(-1, rows)
    scores = scores * scale
    hidden = None
    if causal:
        hidden = ~visible(query_length, key_length, offset, q.device, window=window, first_key=first_key)
    if terms is not None and terms.bias is not None:
        bias = terms.dense_bias(query_length, key_length, offset)  # (1, H, Tq, Tk)
        # The softmax doesn't see what is taken off all scores of a query, but beside 1e4 they would lose their digits.
        seen_bias = bias.detach() if hidden is None else bias.detach().masked_fill(hidden, -math.inf)
        scores = scores + (bias - no_infinity(seen_bias.amax(-1, keepdim=True))).to(q.dtype)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    # Not -inf, of which the softmax of a row that has nothing else would be NaN.
    no_weight = scores == -math.inf
    return scores.masked_fill(no_weight, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(no_weight, 0.0)


def reference_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: RelativeTerms | None,
    *,
    causal: bool,
    offset: int,
    scale: float,
    dropout_p: float,
    window: int | None = None,
    first_key: Tensor | None = None,
) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh); the formula is in `RelativeTerms`.

    A query that sees no key gets zeros.
    """
    weights = attention_weights(
        q, k, terms, causal=causal, offset=offset, scale=scale, window=window, first_key=first_key
    )  # (B, H, Tq, Tk)
    if dropout_p > 0:
        weights = weights * _dropout_factors(weights, causal, offset, dropout_p)
    out = weights.to(v.dtype) @ v  # (B, H, Tq, Dh)
    if terms is not None and terms.values is not None:
        # How much of each query's attention falls on each row; no (Tq, Tk, Dh) tensor of looked-up values.
        rows = terms.row_indices(q.shape[-2], k.shape[-2], offset).expand(weights.shape)
        size = (*weights.shape[:-1], terms.highest - terms.lowest + 1)
        row_weights = weights.new_zeros(size).scatter_add(-1, rows, weights)  # (B, H, Tq, R)
        out = out + row_weights.to(v.dtype) @ terms.values.to(v.dtype)
    return out


@torch.compiler.disable
def _dropout_factors(weights: Tensor, causal: bool, offset: int, dropout_p: float) -> Tensor:
    """(B, H, Tq, Tk): the factors that `blockwise` draws block by block; zeros where a block sees no key."""
    dropout = WeightDropout(dropout_p, weights.device)
    factors = torch.zeros_like(weights)
    for block in query_blocks(weights.shape[-2], weights.shape[-1], offset, causal):
        of_block = factors[..., block.rows, : block.keys]
        of_block.copy_(dropout.factors(block, of_block))
    return factors
