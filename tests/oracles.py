"""Attention as loops over single pairs, written from the formulas and from nothing else. Slow, and meant to be."""

import math

import torch
from torch import Tensor

from poslab.positions import PositionScheme, RelativeTerms


def attention_by_loops(
    q: Tensor, k: Tensor, v: Tensor, terms: RelativeTerms | None, *, causal: bool, offset: int, scale: float
) -> Tensor:
    """The definition of RelativeTerms, pair by pair: q (B, H, Tq, Dh), k and v (B, H, Tk, Dh)."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if not causal or j <= i + offset]
                if terms is not None and terms.window is not None:
                    seen = [j for j in seen if abs(i + offset - j) < terms.window]
                # A bias of -inf hides a key as well.
                seen = [j for j in seen if _pair(terms, h, i + offset - j, q[b, h, i])[0] != -math.inf]
                if not seen:
                    continue
                pairs = [_pair(terms, h, i + offset - j, torch.zeros_like(q[b, h, i])) for j in seen]
                # A constant off all scores changes no weight; 1e9 added to all would leave them no digits.
                largest = max(torch.as_tensor(pair[0]).item() for pair in pairs)
                scores = torch.stack(
                    [
                        scale * (torch.dot(q[b, h, i], k[b, h, j] + key) + torch.dot(query, k[b, h, j]))
                        + (bias - largest)
                        for j, (bias, key, _, query) in zip(seen, pairs, strict=True)
                    ]
                )
                weights = (scores - scores.max()).exp() / (scores - scores.max()).exp().sum()
                out[b, h, i] = sum(
                    w * (v[b, h, j] + value) for w, j, (_, _, value, _) in zip(weights, seen, pairs, strict=True)
                )
    return out


def _pair(terms: RelativeTerms | None, head: int, distance: int, nothing: Tensor) -> tuple[Tensor | float, ...]:
    """(bias, key, value, query) for one head and one distance; `nothing` (Dh,) for vectors that there aren't."""
    if terms is None:
        return 0.0, nothing, nothing, nothing
    row = min(max(distance, terms.lowest), terms.highest) - terms.lowest
    bias = 0.0 if terms.bias is None else terms.bias[head, row]
    key, value, query = (
        nothing if table is None else (table[row] if table.dim() == 2 else table[head, row])
        for table in (terms.keys, terms.values, terms.queries)
    )
    return bias, key, value, query


def t5_bucket(relative_position: int, bidirectional: bool, num_buckets: int, max_distance: int) -> int:
    """Raffel et al. 2020, section 2.1, for one number and in double precision."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if relative_position > 0 else 0
        distance = abs(relative_position)
    else:
        distance = max(0, -relative_position)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    # The tiny addition: where the exact value is a whole number, rounding must not fall below it.
    return first + min(num_buckets - 1, exact + int(share * (num_buckets - exact) + 1e-6))


def has_formula(scheme: PositionScheme) -> bool:
    """Whether its `score` says what its attention computes: one that somebody else has written may have none."""
    hooks = ("rotate", "query", "key", "relative", "score_mod", "key_bias")
    return scheme.overrides("reference_score") or not any(map(scheme.overrides, hooks))
