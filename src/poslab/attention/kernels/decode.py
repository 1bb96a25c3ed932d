"""Attention of one query, the newest token of a text, over keys of a cache that it sees all of.

Then nothing has to be looked up: distances are 0, 1, 2, ... from the last key back, so tables by distance are turned
round and laid beside the keys, once for many tokens. What `relative` says of near rows and the far row holds here, too.

B batch, H heads, n keys, Dh head dimension, R rows of the relative tables.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.kernels.relative import NEAR_BY
from poslab.attention.reference import reference_attention
from poslab.attention.spec import AttentionSpec
from poslab.positions import RelativeTerms


def is_newest(spec: AttentionSpec, query_length: int, key_length: int) -> bool:
    """Whether `newest_attention` can compute this: tables by distance alone, and no key is hidden but by a bias."""
    terms = spec.terms
    others = (spec.window, spec.first_key, spec.key_bias, spec.pairwise)
    if terms is None or terms.queries is not None or terms.lowest > 0 or any(other is not None for other in others):
        return False
    return query_length == 1 and spec.offset == key_length - 1 and terms.highest >= 0


def newest_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """q (B, H, 1, Dh), k and v (B, H, n, Dh) -> (B, H, 1, Dh), as `reference_attention` but for rounding."""
    terms, count = spec.terms, k.shape[-2]
    assert terms is not None
    bias = None
    if terms.bias is not None:
        of_all = _bias(terms, 1 << count.bit_length(), q.dtype)
        if of_all is None:
            return reference_attention(q, k, v, spec)
        bias = of_all[..., -count:]  # (1, H, 1, n)
    if terms.keys is terms.values is None:
        return F.scaled_dot_product_attention(q, k, v, bias, scale=spec.scale)
    dtype = v.dtype
    # A library multiplies 16-bit matrices on a CPU by code that it makes anew for every number of keys.
    q, k, v = (x.to(torch.promote_types(q.dtype, torch.float32)) for x in (q, k, v))
    keys, values, far_value = _near_rows(terms, q.dtype)
    scaled = q * spec.scale
    scores = scaled @ k.mT  # (B, H, 1, n), less what the far row of the keys adds to all of them
    if keys is not None:
        near = scores[..., -keys.shape[-2] :]
        near += scaled @ keys[..., -near.shape[-1] :, :].mT
    if bias is not None:
        scores += bias
    weights = scores.softmax(-1)
    out = weights @ v
    if values is not None and far_value is not None:
        near = weights[..., -values.shape[-2] :]
        out = out + far_value + near @ values[..., -near.shape[-1] :, :]
    return out.to(dtype)


@lru_cache(maxsize=64)  # what the layers of a model have, token after token
@torch.no_grad()
def _bias(terms: RelativeTerms, count: int, dtype: torch.dtype) -> Tensor | None:
    """(1, H, 1, n) of `count` keys, the last of which is the query's own, less a number near the largest.

    None where that number depends on how many keys there are.
    """
    assert terms.bias is not None
    rows = terms.bias[:, -terms.lowest :]  # (H, R), from distance 0 on
    largest, own = rows.amax(-1, keepdim=True), rows[:, :1]
    if not (own > largest - NEAR_BY).all():  # nor where a head sees nothing
        return None
    near = (rows - largest).flip(-1)[:, -count:]
    far = near[:, :1].expand(-1, count - near.shape[-1])
    return torch.cat([far, near], -1).to(dtype)[None, :, None]


@lru_cache(maxsize=64)
@torch.no_grad()
def _near_rows(terms: RelativeTerms, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    """Keys and values of distances `highest` to 0 less those of `highest`, ([H], K, Dh), and the values of that."""

    def less_far(table: Tensor | None) -> Tensor | None:
        return None if table is None else (table[..., -terms.lowest :, :] - table[..., -1:, :]).flip(-2).to(dtype)

    far_value = None if terms.values is None else terms.values[..., -1:, :].to(dtype)
    return less_far(terms.keys), less_far(terms.values), far_value
