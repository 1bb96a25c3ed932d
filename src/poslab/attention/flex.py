"""Relative terms through torch's FlexAttention, which compiles a fused kernel for a GPU.

A bias, and the products of queries with relative keys, are added to each score by its table row. Relative values need
the attention weights, which a fused kernel never shows; but it gives the log-sum-exp of each query, from which the
weights of the few near keys can be had again, one distance at a time. All other keys share the far row of the values.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of a table.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from poslab.attention.relative import with_far_values
from poslab.positions import RelativeTerms

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_problem(terms: RelativeTerms | None, *, causal: bool, dropout_p: float) -> str | None:
    """Why FlexAttention can't compute this, or None if it can."""
    if dropout_p > 0:
        return "has no attention dropout"
    if terms is not None and terms.values is not None and not (causal and terms.lowest <= 0):
        return "computes relative values only in a causal model"
    return None


def flex_terms_attention(
    q: Tensor, k: Tensor, v: Tensor, terms: RelativeTerms | None, *, causal: bool, offset: int, scale: float
) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh); the formula is in `RelativeTerms`."""
    v = with_far_values(v, terms).to(q.dtype)
    mask = _causal_mask(q.shape[-2], k.shape[-2], offset, q.device) if causal else None
    attention: Any = _compiled() if q.device.type == "cuda" else flex_attention
    score_mod = None if terms is None else _score_mod(q, terms, offset, scale)
    out, aux = attention(q, k, v, score_mod, mask, scale, return_aux=AuxRequest(lse=True))
    if terms is None or terms.values is None:
        return out
    log_sum = aux.lse.to(q.dtype)  # (B, H, Tq)
    for distance in range(max(0, terms.lowest), terms.highest):
        weight = _weights_at(distance, q, k, terms, log_sum, offset, scale)  # (B, H, Tq)
        value = (terms.values[..., distance - terms.lowest, :] - terms.values[..., -1, :]).to(q.dtype)  # ([H], Dh)
        out = out + weight[..., None] * value.unsqueeze(-2)
    return out


def _score_mod(q: Tensor, terms: RelativeTerms, offset: int, scale: float) -> ScoreMod:
    """What is added to the score of a pair: batch b, head h, query i, key j."""
    lowest, highest = terms.lowest, terms.highest
    bias = None if terms.bias is None else terms.bias.to(q.dtype)  # (H, R)
    by_row = None if terms.keys is None else scale * q @ terms.keys.to(q.dtype).transpose(-2, -1)  # (B, H, Tq, R)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = (i + offset - j).clamp(lowest, highest) - lowest
        if bias is not None:
            score = score + bias[h, row]
        if by_row is not None:
            score = score + by_row[b, h, i, row]
        return score

    return score_mod


def _weights_at(
    distance: int, q: Tensor, k: Tensor, terms: RelativeTerms, log_sum: Tensor, offset: int, scale: float
) -> Tensor:
    """(B, H, Tq): the weight of the key that is `distance` before each query, 0 where there is none."""
    row = distance - terms.lowest
    key = torch.arange(q.shape[-2], device=q.device) + offset - distance
    there = (key >= 0) & (key < k.shape[-2])
    near_k = k[..., key.clamp(0, k.shape[-2] - 1), :]  # (B, H, Tq, Dh)
    if terms.keys is not None:
        near_k = near_k + terms.keys[..., row, :].to(q.dtype).unsqueeze(-2)  # ([H], 1, Dh)
    score = scale * (q * near_k).sum(-1)  # (B, H, Tq)
    if terms.bias is not None:
        score = score + terms.bias[:, row, None].to(q.dtype)  # (H, 1)
    return torch.where(there, (score - log_sum).masked_fill(~there, 0.0).exp(), 0.0)


@lru_cache(maxsize=8)
def _causal_mask(query_length: int, key_length: int, offset: int, device: torch.device) -> BlockMask:
    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + offset

    return create_block_mask(visible, None, None, query_length, key_length, device=device)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)
