"""Bias of each pair of positions: all that some schemes are.

B batch, H heads, Tq / Tk queries / keys.
"""

import math

import torch
from torch import Tensor

from poslab.attention.reference import Pairwise
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.terms import distances_between


def beyond_a_bias(scheme: PositionScheme, *terms: RelativeTerms | None) -> list[str]:
    """Return the names of what a scheme does to scores that no bias by two positions can hold.

    terms: what its hook `relative` returned, of each layer.
    """
    beyond = {hook for hook in ("token_state", "key_bias", "query_scale") if scheme.overrides(hook)}
    if scheme.overrides("score_mod") and not scheme.additive:
        beyond.add("score_mod")
    for own in terms:
        if own is not None:
            beyond |= own.tables.keys() - {"bias"} | ({"null"} if own.null is not None else set())
    return sorted(beyond)


def dense_bias(
    scheme: PositionScheme,
    tables: Tables,
    shape: ModelShape,
    layer: int,
    q_positions: Tensor,
    k_positions: Tensor,
    distances: range,
    *,
    causal: bool,
) -> Tensor:
    """Return the bias of each pair, (1 or B, H, Tq, Tk), in float32 or better: -inf where a query doesn't see the key.

    q_positions, k_positions: (Tq,) and (Tk,), or (B, ...). distances: all between them, query less key. causal: a
    query doesn't see keys at later positions; else a scheme of a causal model gives them what it gives distance 0.

    Raises SettingError for a scheme that is more than a bias, or none.
    """
    pairs = Pairwise(q_positions, k_positions)
    first = 0 if shape.causal else torch.sym_min(distances.start, 0)
    reach = distances_between(first, torch.sym_max(distances.stop, 1))
    terms = scheme.relative(tables, shape, layer, reach)
    problem = ""
    if beyond := beyond_a_bias(scheme, terms):
        problem = f"does more to scores than a bias by position ({', '.join(beyond)})"
    elif not (scheme.overrides("relative") or scheme.overrides("score_mod")):
        problem = "adds nothing to scores"
    if problem:
        raise SettingError("bias", type(scheme).__name__, problem)
    distance = pairs.i - pairs.j  # (1 or B, 1, Tq, Tk)
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    dtypes = [table.dtype for table in tables.values()]
    wide = torch.promote_types(dtypes[0] if dtypes else torch.float32, torch.float32)
    bias = torch.zeros((), dtype=wide, device=distance.device)
    bias = bias.expand(len(distance), shape.num_heads, *distance.shape[2:])
    if terms is not None and terms.window is not None:
        seen = seen & (distance.abs() < terms.window)
    if terms is not None and terms.bias is not None:
        terms = terms.to(distance.device)
        bias = terms.bias_of(terms.rows_of(distance).squeeze(1))
        bias = bias.to(torch.promote_types(bias.dtype, wide))
    if scheme.overrides("score_mod"):
        queries, keys = (bias.new_zeros(()).expand(*bias.shape[:2], n, shape.head_dim) for n in bias.shape[2:])
        index = torch.arange(bias.shape[2], device=bias.device)
        tile = ScoreTile(bias, queries, keys, None, pairs.i, pairs.j, seen, 1.0, causal, index)
        bias = scheme.score_mod(tables, layer, tile)
    return bias.masked_fill(~seen, -math.inf)
