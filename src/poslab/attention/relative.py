"""How relative terms meet the scores: as a band of diagonals.

All distances from `highest` on share one row of a table, the far row. What is far needs no keys and values once this
row is taken off the others: a constant added to all scores of a query leaves its softmax as it is, and the far row of
the values is added to the values themselves. What remains are the K rows of the distances lowest .. highest - 1, the
near rows, and they touch only the diagonals of the score matrix that have these distances.

A bias is not taken less the far row: of any size, -inf included, the far row could leave the near ones no digits.
Each query's biases are taken less the largest among the keys that it sees. The pairs that matter then have a bias near
0, and rounding touches pairs of next to no weight. The far keys' bias is one number for each query.

In a matrix of scores these diagonals are a strided view (m, K) whose rows each begin one number further right, so that
a column holds one distance. Tables are added to it, and their gradients read from it, without a tensor of looked-up
rows. Near rows are stored in the order of the view's columns, from far to near.

N = B H batch and heads, Tq / Tk queries / keys, m queries, K near rows.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.positions import RelativeTerms

# Scores are kept as powers of two rather than e: on a CPU torch's exp() is up to a hundred times slower where it
# underflows, as attention weights often do; its exp2() is not.
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, eq=False)
class NearTables:
    """The near rows, from distance highest - 1 down to lowest: of keys and values less the far row."""

    lowest: int
    highest: int
    bias: Tensor | None = None  # (N, K)
    far_bias: Tensor | None = None  # (N, 1)
    largest_bias: Tensor | None = None  # (N, Tq, 1), a constant for the gradients
    keys: Tensor | None = None  # (N, K, Dh)
    values: Tensor | None = None  # (N, K, Dh)

    @property
    def tables(self) -> tuple[Tensor | None, ...]:
        return self.bias, self.far_bias, self.largest_bias, self.keys, self.values

    @property
    def count(self) -> int:
        """K, or 0 if there are no tables."""
        return 0 if all(table is None for table in self.tables) else self.highest - self.lowest


def near_tables(
    terms: RelativeTerms | None, q: Tensor, key_length: int, *, causal: bool, offset: int, dtype: torch.dtype
) -> NearTables:
    """The tables for q (B, H, Tq, Dh) over `key_length` keys, in `dtype`, differentiable in those of `terms`."""
    if terms is None:
        return NearTables(0, 0)
    batch, heads, query_length, _ = q.shape
    # A causal query sees no distance below 0.
    lowest = max(terms.lowest, min(0, terms.highest)) if causal else terms.lowest
    near = slice(lowest - terms.lowest, terms.highest - terms.lowest)

    def less_far(table: Tensor | None) -> Tensor | None:
        if table is None:
            return None
        rows = (table[..., near, :] - table[..., -1:, :]).flip(-2).to(dtype)  # ([H], K, Dh)
        # A table that heads share stays one in memory.
        return rows.expand(batch * heads, -1, -1) if rows.dim() == 2 else rows.repeat(batch, 1, 1)  # (N, K, Dh)

    keys, values = less_far(terms.keys), less_far(terms.values)
    if terms.bias is None:
        return NearTables(lowest, terms.highest, keys=keys, values=values)
    bias = terms.bias.to(dtype).repeat(batch, 1)  # (H, R) -> (N, R)
    largest = largest_bias(terms, query_length, key_length, causal=causal, offset=offset).to(dtype).repeat(batch, 1)
    return NearTables(lowest, terms.highest, bias[:, near].flip(-1), bias[:, -1:], largest[..., None], keys, values)


@torch.no_grad()
def largest_bias(terms: RelativeTerms, query_length: int, key_length: int, *, causal: bool, offset: int) -> Tensor:
    """(H, Tq): the largest bias among the keys that a query sees, 0 where that is -inf or it sees none."""
    assert terms.bias is not None
    last = offset + query_length - 1
    distance = torch.arange(last, last - query_length - key_length + 1, -1, device=terms.bias.device)
    by_distance = terms.bias[:, distance.clamp(terms.lowest, terms.highest) - terms.lowest]
    if causal:
        by_distance = by_distance.masked_fill(distance < 0, -math.inf)
    largest = by_distance.unfold(-1, key_length, 1).amax(-1).flip(-1)  # one window of distances per query
    return no_infinity(largest)


def no_infinity(largest: Tensor) -> Tensor:
    """`largest` with zeros in place of -inf, so that -inf less the largest of a row is -inf and never NaN."""
    return largest.masked_fill(largest == -math.inf, 0.0)


def with_far_values(v: Tensor, terms: RelativeTerms | None) -> Tensor:
    """v (B, H, T, Dh) plus the far row of the values, which each weight then brings along."""
    if terms is None or terms.values is None:
        return v
    return v + terms.values[..., -1:, :].to(v.dtype)


def band(scores: Tensor, first_column: int, width: int) -> Tensor:
    """The view (N, m, width) of `scores` (N, m, n) that starts at `first_column` and one further right in each row."""
    strides = (scores.stride(0), scores.stride(1) + 1, 1)
    return scores.as_strided((*scores.shape[:2], width), strides, scores.storage_offset() + first_column)
