"""Attention by torch's scaled_dot_product_attention: without position, or with a bias by distance as its mask.

On a GPU its kernels take a mask of numbers and give its gradient, where blocks of queries in eager torch start hundreds
of small kernels. Compiled, in bfloat16 at 1,024 tokens, a mask takes 0.99 times the time of flex with a bias that isn't
learned, and 1.24 times with one that is, whose gradient is a matrix, too; in float32 at 512 tokens, uncompiled, 0.15
times (H200). The mask (H, Tq, Tk) is dense: `dispatch` limits its length.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.reference import AttentionSpec, no_infinity


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh).

    The specification may have a bias by distance, a window and first keys. A query that sees no key gets zeros.
    """
    query_length, key_length = q.shape[-2], k.shape[-2]
    if not spec.parts:
        # Branches, because in a compiled graph with symbols for lengths a comparison is no bool.
        seen, is_causal = None, False
        if spec.causal and spec.offset < key_length - 1:
            if spec.offset == 0:  # the only offset that torch's own causal mask has
                is_causal = True
            else:
                seen = spec.visible(query_length, key_length, q.device)
        return F.scaled_dot_product_attention(q, k, v, seen, dropout_p, is_causal, scale=spec.scale)
    bias = torch.zeros(1, 1, 1, device=q.device, dtype=q.dtype)
    if spec.terms is not None:
        assert spec.terms.bias is not None
        # From the farthest distance down.
        distance = torch.arange(spec.offset + query_length - 1, spec.offset - key_length, -1, device=q.device)
        bias = skewed(spec.terms.bias[:, spec.terms.rows_of(distance)], query_length)  # (H, Tq, Tk)
    scores = torch.where(spec.visible(query_length, key_length, q.device), bias, -math.inf)
    # Biases are taken less the largest that a query sees, as in `reference`: beside it 16 bits are digits enough.
    largest = scores.detach().amax(-1, keepdim=True)
    nothing = largest == -math.inf  # (..., Tq, 1): the query sees no key
    mask = (scores - no_infinity(largest)).masked_fill(nothing, 0.0).to(q.dtype)
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, scale=spec.scale)
    return out.masked_fill(nothing, 0.0)


def skewed(numbers: Tensor, queries: int) -> Tensor:
    """Return the matrix (H, m, n) of m queries in which each of numbers (H, m + n - 1) fills a diagonal.

    The first number stands in the corner of the last query and the first key. Rows that each begin one number further
    back are cut from copies of the numbers, laid end to end (the shift of Huang et al. 2018, arXiv 1809.04281, section
    3.4.1). Its gradient is a sum, where one of looked-up rows would add all pairs into few places of a table, one after
    the other.
    """
    count = numbers.shape[-1]
    laid = F.pad(numbers, (0, 1))[:, None].expand(-1, queries, -1).flatten(1)[:, : queries * count]
    return laid.unflatten(1, (queries, count))[..., queries - 1 :]
