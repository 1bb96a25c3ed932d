"""Near tables: relative terms less their far row, which touch a band of diagonals in the scores.

All distances from `highest` on share one row of a table, the far row. Far pairs need no table once this row is
subtracted from the others: of the keys it adds a constant to all scores of a query, which leaves its softmax as it is;
of the values and queries it is added to the values and queries themselves. What remains are the K rows of the distances
lowest .. highest - 1, the near rows, on their diagonals of the score matrix. These are a strided view (m, K) whose rows
each begin one number further right, so that a column holds one distance: tables are added to it, and their gradients
read from it, without a tensor of looked-up rows. Near rows are stored in the order of its columns, from far to near.

A bias may be of any size, -inf included, and is not taken less the far row, which could leave the near ones no digits,
but less the largest among the keys that each query sees, or a little more: the pairs that matter have a bias near 0.

N = B H batch and heads, Tq / Tk queries / keys, m queries, K near rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from poslab.attention.blocks import QueryBlock
from poslab.attention.reference import AttentionSpec, no_infinity

# Scores are kept as powers of two rather than e: on a CPU torch's exp() is up to a hundred times slower where it
# underflows, as attention weights often do; its exp2() is not.
LOG2_E = math.log2(math.e)
# Beside so large a number, scores keep their digits.
NEAR_BY = 16.0


@dataclass(frozen=True, eq=False)
class NearTables:
    """Near rows, from distance highest - 1 down to lowest: of keys, values and queries less the far row."""

    lowest: int
    highest: int
    bias: Tensor | None = None  # (N, K)
    far_bias: Tensor | None = None  # (N, 1)
    largest_bias: Tensor | None = None  # (N, Tq, 1), a constant for the gradients
    keys: Tensor | None = None  # (N, K, Dh)
    values: Tensor | None = None  # (N, K, Dh)
    queries: Tensor | None = None  # (N, K, Dh), and the far row (N, 1, Dh), both times the scale
    far_query: Tensor | None = None

    @property
    def tables(self) -> tuple[Tensor | None, ...]:
        """Tensors in the order of the fields: `NearTables(lowest, highest, *tables)` is this again."""
        return self.bias, self.far_bias, self.largest_bias, self.keys, self.values, self.queries, self.far_query

    def zeros(self) -> NearTables:
        """Return zeros in the place of each tensor, to which their gradients are added."""
        zeros = (None if table is None else table.new_zeros(table.shape) for table in self.tables)
        return NearTables(self.lowest, self.highest, *zeros)

    def steps_of_largest_bias(self) -> tuple[int, ...]:
        """Return the queries whose largest bias, in any head, isn't that of the query before: few as a rule. In a block
        without one, one number is the largest bias of all rows."""
        if self.largest_bias is None:
            return ()
        steps = self.largest_bias.diff(dim=1).any(-1).any(0)  # (Tq - 1,)
        return tuple((steps.nonzero()[:, 0] + 1).tolist())

    def far_bias_is_largest(self) -> bool:
        """Return whether `largest_bias` is the far bias for every query, so that nothing is added to far scores."""
        if self.far_bias is None or self.largest_bias is None:
            return False
        return torch.equal(self.far_bias[:, None].expand_as(self.largest_bias), self.largest_bias)

    def may_underflow(self) -> bool:
        """Return whether the bias alone may make the weight of one key a denormal number beside that of another."""
        if self.bias is None or self.far_bias is None:
            return False
        both = torch.cat([self.bias, self.far_bias], -1)
        return not (both.amax(-1) - both.amin(-1) < 2 * NEAR_BY).all()

    @cached_property
    def count(self) -> int:
        """K, or 0 if there are no tables."""
        return 0 if all(table is None for table in self.tables) else self.highest - self.lowest


def near_tables(spec: AttentionSpec, q: Tensor, key_length: int, dtype: torch.dtype) -> NearTables:
    """Return the tables for q (B, H, Tq, Dh) over `key_length` keys, in `dtype`, differentiable in the terms'."""
    terms = spec.terms
    if terms is None:
        return NearTables(0, 0)
    batch, heads, query_length, _ = q.shape
    # A causal query sees no distance below 0.
    lowest = max(terms.lowest, min(0, terms.highest)) if spec.causal else terms.lowest
    near = slice(lowest - terms.lowest, terms.highest - terms.lowest)

    def each_head(table: Tensor) -> Tensor:
        """Expand ([H], K, Dh) to (N, K, Dh); a table that heads share stays one in memory."""
        table = table.to(dtype)
        return table.expand(batch * heads, -1, -1) if table.dim() == 2 else table.repeat(batch, 1, 1)

    def less_far(table: Tensor | None) -> Tensor | None:
        return None if table is None else each_head((table[..., near, :] - table[..., -1:, :]).flip(-2))

    tables: dict[str, Tensor | None] = {"keys": less_far(terms.keys), "values": less_far(terms.values)}
    if terms.queries is not None:
        queries = terms.queries * spec.scale
        tables |= {"queries": less_far(queries), "far_query": each_head(queries[..., -1:, :])}
    if terms.bias is not None:
        bias = terms.bias.to(dtype).repeat(batch, 1)  # (H, R) -> (N, R)
        largest = largest_bias(spec, query_length, key_length).to(dtype).repeat(batch, 1)[..., None]
        tables |= {"bias": bias[:, near].flip(-1), "far_bias": bias[:, -1:], "largest_bias": largest}
    return NearTables(lowest, terms.highest, **tables)


@torch.no_grad()
def largest_bias(spec: AttentionSpec, query_length: int, key_length: int) -> Tensor:
    """Return the largest bias among the keys that each query sees, or near it, (H, Tq); 0 where that is -inf.

    One number for nearly all queries of a head spares the kernels a number for each; that of the far keys, where it is
    near enough, spares them to add anything to these.
    """
    terms = spec.terms
    assert terms is not None
    assert terms.bias is not None
    last = spec.offset + query_length - 1
    distance = torch.arange(last, last - query_length - key_length + 1, -1, device=terms.bias.device)
    by_distance = terms.bias[:, terms.rows_of(distance)]
    if spec.causal:
        by_distance = by_distance.masked_fill(distance < 0, -math.inf)
    if spec.window is not None:
        by_distance = by_distance.masked_fill(distance.abs() >= spec.window, -math.inf)
    largest = no_infinity(_sliding_maximum(by_distance, key_length).flip(-1))  # one window of distances per query
    common, far = largest.amax(-1, keepdim=True), terms.bias[:, -1:]
    largest = common.where(common - largest < NEAR_BY, largest)
    return far.where((largest - far).abs() < NEAR_BY, largest)


def key_bias(spec: AttentionSpec, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the bias of each key, (N, Tk), -inf before `first_key`, and the largest that a query sees, (N, Tq, 1).

    Both in the precision of the bias; both None without a bias of keys.
    """
    bias, first_key = spec.key_bias, spec.first_key
    query_length, key_length = q.shape[-2], k.shape[-2]
    if first_key is not None:
        bias = torch.zeros(1, dtype=q.dtype, device=q.device) if bias is None else bias
        bias = bias.masked_fill(torch.arange(key_length, device=q.device) < first_key[:, None, None], -math.inf)
    if bias is None:
        return None, None
    bias = bias.expand(*k.shape[:3]).flatten(0, 1)
    # How many keys before and after its own position a query may see.
    first, last = spec.offset, spec.offset + query_length - 1
    before, after = max(0, last), 0 if spec.causal else max(0, key_length - 1 - first)
    if spec.window is not None:
        before, after = min(before, spec.window - 1), min(after, spec.window - 1)
    positions = torch.arange(first - before, last + after + 1, device=q.device)
    nothing = (positions < 0) | (positions >= key_length)
    bias_at_positions = bias.detach()[:, positions.clamp(0, key_length - 1)].masked_fill(nothing, -math.inf)
    return bias, no_infinity(_sliding_maximum(bias_at_positions, before + 1 + after))[..., None]


def null_scores(spec: AttentionSpec, q: Tensor, near: NearTables, largest_key_bias: Tensor | None) -> Tensor | None:
    """Return the null scores (B, H, Tq, 1), less what is left out of all other scores of a query."""
    if spec.null is None:
        return None
    null = spec.null.to(torch.promote_types(q.dtype, torch.float32))[:, None, None].expand(*q.shape[:3], 1)
    for largest in (near.largest_bias, largest_key_bias):
        null = null if largest is None else null - largest.unflatten(0, q.shape[:2]).to(null.dtype)
    if spec.terms is not None and spec.terms.keys is not None:  # their far row
        null = null - spec.scale * q.to(null.dtype) @ spec.terms.keys[..., -1:, :].to(null.dtype).mT
    return null


def needed_keys(
    blocks: Sequence[QueryBlock], bias: Tensor, largest_score: float, dtype: torch.dtype
) -> list[QueryBlock]:
    """Remove from blocks of causal queries the keys at their beginning whose bias (N, Tk) leaves them no weight.

    Where attention forgets fast, most of its work is with such keys. Leaving them out is known as adaptive computation
    pruning (Lin et al. 2025, arXiv 2504.06949), here so far down that the last digit of `dtype` doesn't notice.
    largest_score: what the product of a query and a key can add.
    """
    rising = bias.detach().cummax(-1).values.nan_to_num(nan=math.inf)
    own = [min(block.first_key + block.position, rising.shape[-1] - 1) for block in blocks]
    nothing = 2 * math.log(torch.finfo(torch.promote_types(dtype, torch.float32)).eps)
    bound = rising[:, own] + (nothing - 2 * largest_score)  # (N, blocks)
    first = torch.searchsorted(rising, bound.nan_to_num(nan=-math.inf)).amin(0)
    return [block.without_keys_before(key) for block, key in zip(blocks, first.tolist(), strict=True)]


def largest_score(q: Tensor, k: Tensor, scale: float = 1.0) -> float:
    """Return a bound of the products of any query and key: that of their norms."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    largest = (torch.linalg.vector_norm(x.detach(), dim=-1, dtype=dtype).max() for x in (q, k))
    return scale * math.prod(map(float, largest))


def _sliding_maximum(x: Tensor, width: int) -> Tensor:
    """Return the largest of every `width` neighbours of x (..., n), (..., n - width + 1), by windows that double."""
    reach = 1
    while 2 * reach <= width:
        x = torch.maximum(x[..., :-reach], x[..., reach:])
        reach *= 2
    rest = width - reach
    return torch.maximum(x[..., : x.shape[-1] - rest], x[..., rest:])
