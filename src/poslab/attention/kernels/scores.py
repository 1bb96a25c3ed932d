"""Scores of blockwise attention, one block of queries after another, for its forward and backward pass.

They are multiplied by log2(e), as weights are computed by exp2().

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.attention.blocks import BLOCK, QueryBlock, WeightDropout, query_blocks
from poslab.attention.kernels.band_tile import BandTile, limits_of_scores, storage_size
from poslab.attention.kernels.near_tables import LOG2_E, NearTables, largest_score, needed_keys
from poslab.attention.kernels.products import for_product, rounded

# With rounded products, which take half the time, each call counts for more.
_LARGE_BLOCK = 256


@dataclass(frozen=True)
class Call:
    """Arguments of one call of `blockwise_attention` that are no tensors."""

    causal: bool
    offset: int
    window: int | None
    lowest: int
    highest: int
    steps: tuple[int, ...]  # queries whose largest bias isn't that of the query before
    far_bias_is_largest: bool  # nothing is added to the scores of far keys
    may_underflow: bool  # a bias may fall so far that weights are denormal numbers
    prunes_keys: bool  # a bias of keys, and nothing else, may leave some without weight
    dropout: WeightDropout | None
    dtype: torch.dtype  # of matrix products


class Scores:
    """Scores of a call's blocks, computed one at a time in the same memory."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        near: NearTables,
        call: Call,
        key_bias: Tensor | None,
        largest_key_bias: Tensor | None,
        log_sum: Tensor | None = None,
    ) -> None:
        """Divide the queries into blocks.

        log_sum: (N, Tq, 1), in powers of two, the log-sum-exp that the backward pass subtracts from the scores.
        """
        self.k, self.near, self.call = k, near, call
        self.key_bias, self.largest_key_bias = key_bias, largest_key_bias
        # Dropout draws its masks for blocks of one size, and all of their keys.
        large = rounded() and call.dropout is None and call.window is None and q.shape[1] >= 4 * _LARGE_BLOCK
        size = _LARGE_BLOCK if large else BLOCK
        self.blocks = list(query_blocks(q.shape[1], k.shape[1], call.offset, call.causal, call.window, size))
        if call.prunes_keys and key_bias is not None and call.causal and call.window is None:
            self.blocks = needed_keys(self.blocks, key_bias, largest_score(q, k), q.dtype)
        self.queries = q if near.far_query is None else q + near.far_query  # what the keys are multiplied with
        self._q = q * LOG2_E
        products = self._q if near.far_query is None else self.queries * LOG2_E, k
        self._products = products if log_sum is None else adding(-log_sum, *products)
        self._log_sum = None
        if rounded():  # only what came in bfloat16 is: neither the logarithm's base nor the log-sum-exp
            self._products, self._log_sum = (self.queries, k), log_sum
        self._limits = limits_of_scores(q, size)
        self._storage = self.new_storage()

    def new_storage(self) -> Tensor:
        """Allocate memory for the tile of any of the blocks."""
        return self.k.new_empty(len(self.k) * max(map(storage_size, self.blocks), default=0))

    def compute_tile(self, block: QueryBlock, seen_k: Tensor | None = None) -> BandTile:
        """Compute the block's scores in powers of two, -inf where hidden; seen_k: the block's keys, if at hand."""
        near, call = self.near, self.call
        tile = BandTile(self._storage, len(self.k), block, near, call.causal)
        queries, keys = self._products
        if seen_k is None or keys is not self.k:
            seen_k = for_product(keys[:, block.columns])
        base = LOG2_E if rounded() else 1
        tile.scores.baddbmm_(for_product(queries[:, block.rows]), seen_k.transpose(1, 2), beta=0, alpha=base)
        if self._log_sum is not None:
            tile.scores.sub_(self._log_sum[:, block.rows])
        if near.bias is not None:
            assert near.largest_bias is not None
            same = not any(block.first_query < query < block.rows.stop for query in call.steps)
            largest = near.largest_bias[:, block.rows][:, : 1 if same else None]
            tile.add_bias(near, largest, far=not call.far_bias_is_largest)
        if self.key_bias is not None:
            self._add_key_bias(tile.scores, block)
        if near.keys is not None:
            tile.add_by_query(self._q[:, block.rows], near.keys[:, tile.rows])
        if near.queries is not None:
            tile.add_by_key(near.queries[:, tile.rows], self.k[:, block.columns], LOG2_E)
        tile.hide(block, call.causal, call.window, self._limits)
        return tile

    def _add_key_bias(self, scores: Tensor, block: QueryBlock) -> None:
        """Add to each score (N, m, n) its key's bias less the largest that the query sees.

        The largest is subtracted in the bias's own precision: sums along a text are so large that biases of near keys
        would lose their digits in float32. For keys before the block this takes two steps, so that no tensor of a
        tile's size is in float64.
        """
        assert self.key_bias is not None
        assert self.largest_key_bias is not None
        bias, dtype = self.key_bias[:, None, block.columns], scores.dtype  # (N, 1, n)
        largest = self.largest_key_bias[:, block.rows]  # (N, m, 1)
        first, before = largest[:, :1], max(0, block.position)
        scores[..., :before].add_(((bias[..., :before] - first) * LOG2_E).to(dtype))
        scores[..., :before].sub_(((largest - first) * LOG2_E).to(dtype))
        scores[..., before:].add_(((bias[..., before:] - largest) * LOG2_E).to(dtype))

    def exp2_(self, scores: Tensor) -> Tensor:
        """Raise 2 to the power of the scores, in place; where a bias may fall far, give 0 for nearly denormal numbers.

        A CPU computes slowly with denormal numbers, and a bias that falls with distance makes many of them: at
        T = 2,048, attention with a linear bias takes 2.4 times as long. Without such a bias they are rare, and looking
        for them costs 5 %.
        """
        if self.call.may_underflow:
            # With room to spare, for products of weights and gradients.
            torch.threshold_(scores, math.log2(torch.finfo(scores.dtype).tiny) + 26, -math.inf)
        return scores.exp2_()


def adding(number: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Append a channel to q (N, Tq, Dh) and k (N, Tk, Dh) that adds `number` (N, Tq, 1) to their products."""
    return torch.cat([q, number], -1), torch.cat([k, torch.ones_like(k[..., :1])], -1)
