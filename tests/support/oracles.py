"""Attention as loops over single pairs, written from the formulas and from nothing else. Slow, and meant to be."""

import math
from typing import Any

import torch
from torch import Tensor

from poslab.contract.checks import CHECKS
from poslab.contract.trial import compare
from poslab.positions import PositionScheme, RelativeTerms


def attention_by_loops(
    q: Tensor, k: Tensor, v: Tensor, terms: RelativeTerms | None, *, causal: bool, offset: int, scale: float
) -> Tensor:
    """Compute attention by the definition of RelativeTerms, pair by pair: q (B, H, Tq, Dh), k and v (B, H, Tk, Dh)."""
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
                null = -math.inf if terms is None or terms.null is None else terms.null[h] - largest
                weights = torch.cat([scores, torch.as_tensor(null).to(scores)[None]]).softmax(0)[:-1]
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


def random_terms(
    kind: str, heads: int, head_dim: int, lowest: int, highest: int, dtype: torch.dtype = torch.float64, **window: Any
) -> tuple[RelativeTerms | None, list[Tensor]]:
    """Return terms with random tables, and the list of these; kind: "none", or tables as in "bias, keys per head"."""
    if kind == "none":
        return None, []
    rows = highest - lowest + 1
    vectors = (heads, rows, head_dim) if kind.endswith(" per head") else (rows, head_dim)
    others = {"bias": (heads, rows), "null": (heads,)}
    shapes = {name: others.get(name, vectors) for name in kind.removesuffix(" per head").split(", ")}
    tables = {name: torch.randn(shape, dtype=dtype, requires_grad=True) for name, shape in shapes.items()}
    return RelativeTerms(lowest, highest, **tables, **window), list(tables.values())


def assert_is_the_formula(scheme: PositionScheme) -> None:
    compare(CHECKS["formula of the paper"], scheme)
