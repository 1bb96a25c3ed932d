"""How relative terms meet the scores: as a band of diagonals.

All distances from `highest` on share one row of a table, the far row. What is far needs no terms at all once this row
is taken off the others: a constant added to all scores of a query leaves its softmax as it is, and the far row of the
values is added to the values themselves. What remains are the K rows of the distances lowest .. highest - 1, the near
rows, and they touch only the diagonals of the score matrix that have these distances.

In a matrix of scores these diagonals are a strided view (m, K) whose rows each begin one number further right, so that
a column holds one distance. Tables are added to it, and their gradients read from it, without a tensor of looked-up
rows. Near rows are stored in the order of the view's columns, from far to near.

N = B H batch and heads, m queries, K near rows.
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
    """The near rows less the far row, from distance highest - 1 down to lowest."""

    lowest: int
    highest: int
    bias: Tensor | None = None  # (N, K)
    keys: Tensor | None = None  # (N, K, Dh)
    values: Tensor | None = None  # (N, K, Dh)

    @property
    def count(self) -> int:
        """K, or 0 if there are no tables."""
        return 0 if self.bias is None and self.keys is None and self.values is None else self.highest - self.lowest


def near_tables(terms: RelativeTerms | None, batch: int, heads: int, *, causal: bool, dtype: torch.dtype) -> NearTables:
    """The near rows of the distances that can occur, differentiable in the tables."""
    if terms is None:
        return NearTables(0, 0)
    # A causal query sees no distance below 0.
    lowest = max(terms.lowest, min(0, terms.highest)) if causal else terms.lowest
    first = lowest - terms.lowest

    def less_far(table: Tensor, row_axis: int) -> Tensor:
        far = table.narrow(row_axis, -1, 1)
        near = table.narrow(row_axis, first, terms.highest - lowest)
        return (near - far).flip(row_axis).to(dtype)

    def for_each_head(table: Tensor | None) -> Tensor | None:
        if table is None:
            return None
        near = less_far(table, -2)  # ([H], K, Dh)
        # A table that heads share stays one in memory.
        return near.expand(batch * heads, -1, -1) if near.dim() == 2 else near.repeat(batch, 1, 1)  # (N, K, Dh)

    bias = None if terms.bias is None else less_far(terms.bias, -1).repeat(batch, 1)  # (H, K) -> (N, K)
    return NearTables(lowest, terms.highest, bias, for_each_head(terms.keys), for_each_head(terms.values))


def with_far_values(v: Tensor, terms: RelativeTerms | None) -> Tensor:
    """v (B, H, T, Dh) plus the far row of the values, which each weight then brings along."""
    if terms is None or terms.values is None:
        return v
    return v + terms.values[..., -1:, :].to(v.dtype)


def band(scores: Tensor, first_column: int, width: int) -> Tensor:
    """The view (N, m, width) of `scores` (N, m, n) that starts at `first_column` and one further right in each row."""
    strides = (scores.stride(0), scores.stride(1) + 1, 1)
    return scores.as_strided((*scores.shape[:2], width), strides, scores.storage_offset() + first_column)
