"""Attention of one query, the newest token of a text, over keys of a cache that it sees all of.

Then nothing has to be looked up: distances are 0, 1, 2, ... from the last key back, so tables by distance are turned
round and laid beside the keys.

B batch, H heads, n keys, Dh head dimension, R rows of the relative tables.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.problem import Problem
from poslab.attention.reference import reference_attention
from poslab.positions import RelativeTerms


def is_newest(problem: Problem, query_length: int, key_length: int) -> bool:
    """Whether `newest_attention` can compute this: tables by distance alone, and no key is hidden but by a bias."""
    terms = problem.terms
    others = (problem.window, problem.first_key, problem.key_bias, problem.pairwise)
    if terms is None or terms.queries is not None or terms.lowest > 0 or any(other is not None for other in others):
        return False
    return query_length == 1 and problem.offset == key_length - 1 and terms.highest >= 0


def newest_attention(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
    """q (B, H, 1, Dh), k and v (B, H, n, Dh) -> (B, H, 1, Dh), as `reference_attention` but for rounding."""
    terms, count = problem.terms, k.shape[-2]
    assert terms is not None
    bias = None
    if terms.bias is not None:
        bias = _by_key(terms.bias[:, None], terms, count)  # (H, 1, n)
        largest = bias.amax(-1, keepdim=True)
        if (largest == -math.inf).any():  # a head that sees nothing
            return reference_attention(q, k, v, problem)
        bias = (bias - largest).to(q.dtype)  # as there
    if bias is not None and terms.keys is terms.values is None:
        return F.scaled_dot_product_attention(q, k, v, bias[None], scale=problem.scale)
    scaled = q * problem.scale
    scores = scaled @ k.mT  # (B, H, 1, n)
    if terms.keys is not None:
        scores = scores + _by_key(scaled @ terms.keys.to(q.dtype).mT, terms, count)
    if bias is not None:
        scores = scores + bias
    weights = scores.softmax(-1)
    out = weights.to(v.dtype) @ v
    if terms.values is not None:
        by_distance = weights.flip(-1)
        near = by_distance[..., : terms.highest + 1]
        if near.shape[-1] < count:
            farther = by_distance[..., terms.highest :].sum(-1, keepdim=True)
            near = torch.cat([near[..., :-1], farther], -1)
        values = terms.values[..., -terms.lowest :, :][..., : near.shape[-1], :]
        out = out + near.to(v.dtype) @ values.to(v.dtype)
    return out


def _by_key(of_rows: Tensor, terms: RelativeTerms, count: int) -> Tensor:
    """Numbers by row (..., R) -> those of `count` keys (..., n), the last of which is the query's own."""
    near = of_rows[..., -terms.lowest :][..., :count].flip(-1)
    missing = count - near.shape[-1]
    if missing == 0:
        return near
    return torch.cat([of_rows[..., -1:].expand(*of_rows.shape[:-1], missing), near], -1)
