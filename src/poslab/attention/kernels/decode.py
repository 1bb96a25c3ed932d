"""Attention of one query, the newest token of a text, over all keys of a cache.

Distances are 0, 1, 2, ... from the last key back, so that tables by distance are reversed and laid beside the keys,
once for many tokens, and nothing is looked up.

The dense reference, which would be chosen otherwise, takes 4.8, 2.5 and 1.9 times as long with 256, 1,024 and 2,048
keys and a bias over 114 distances, 2.5, 2.1 and 2.0 times with keys and values of 17 (processor time of one core, AMD
EPYC with AVX-512 and bfloat16; float32, 4 heads of 64).

B batch, H heads, n keys, Dh head dimension, R rows of the relative tables.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.kernels.near_tables import NEAR_BY
from poslab.attention.reference import AttentionSpec, reference_attention
from poslab.positions import RelativeTerms


def decode_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """Return attention of q (B, H, 1, Dh) over k and v (B, H, n, Dh), (B, H, 1, Dh), as the reference but rounding."""
    terms, count = spec.terms, k.shape[-2]
    assert terms is not None
    bias = None
    if terms.bias is not None:
        of_all = _bias(terms, 1 << count.bit_length(), q.dtype)
        if of_all is None:
            return reference_attention(q, k, v, spec)
        # A copy, because torch's kernels for CUDA read a mask from any address as if it were a multiple of 16 bytes.
        bias = of_all[..., -count:].clone()  # (1, H, 1, n)
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
    """Return the bias of `count` keys, the last of them the query's own, less a number near the largest, (1, H, 1, n).

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
    """Return keys and values of distances `highest` to 0 less those of `highest`, ([H], K, Dh), and the far value."""

    def less_far(table: Tensor | None) -> Tensor | None:
        return None if table is None else (table[..., -terms.lowest :, :] - table[..., -1:, :]).flip(-2).to(dtype)

    far_value = None if terms.values is None else terms.values[..., -1:, :].to(dtype)
    return less_far(terms.keys), less_far(terms.values), far_value
