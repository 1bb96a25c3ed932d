"""The scores of one block of queries, and where near rows meet them."""

import torch
from torch import Tensor

from poslab.attention.blocks import Block
from poslab.attention.relative import LOG2_E, NearTables, band


def storage_size(block: Block) -> int:
    """How many numbers the tile of a block takes at most, for one head."""
    return block.queries * (block.keys + 2 * block.queries)


class Tile:
    """The scores (N, m, n) of a block, stored so that the diagonals of the near rows are a view.

    rows: which near rows occur in the block, as a slice; (N, m, R) below has a column for each of them.
    """

    def __init__(self, storage: Tensor, heads: int, block: Block, near: NearTables, causal: bool) -> None:
        # Near row c has distance highest - 1 - c: the block's first query meets it at key first_key + c.
        first_key = block.position - near.highest + 1
        start = max(0, 1 - block.queries - first_key)
        stop = max(start, min(near.count, block.keys - first_key))
        width = stop - start
        # The view is a parallelogram: where it sticks out of the scores, there must be room.
        left = max(0, -(first_key + start)) if width else 0
        right = max(0, first_key + stop + block.queries - 1 - block.keys) if width else 0
        length = left + block.keys + right
        padded = storage[: heads * block.queries * length].view(heads, block.queries, length)
        self.scores = padded[..., left : left + block.keys]
        self._room = [side for side in (padded[..., :left], padded[..., left + block.keys :]) if side.numel()]
        self._band = band(padded, left + first_key + start if width else 0, width)
        # Keys at distances below `lowest` share the last near row; the block's first query has them from here on.
        first_below = block.position - near.lowest + 1
        self._below = None
        if near.count and first_below < block.keys and (not causal or near.lowest > 0):
            self._below = self.scores[..., max(0, first_below) :]
            self._diagonal = min(0, first_below)
            start, stop = min(start, near.count - 1), near.count
        self.rows = slice(start, stop)

    def put_bias(self, near: NearTables, block: Block, log_sum: Tensor | None) -> None:
        """Makes each score its pair's bias less the query's largest, and less log_sum (N, m, 1) in powers of two."""
        assert near.bias is not None
        assert near.far_bias is not None
        assert near.largest_bias is not None
        by_row = near.bias[:, None, self.rows]  # (N, 1, R)
        largest = near.largest_bias[:, block.rows]  # (N, m, 1)
        rest = torch.zeros_like(largest) if log_sum is None else log_sum / LOG2_E
        # No more than 0 where there are far keys; hidden keys, which get it too, must not become inf.
        self.scores.copy_((near.far_bias[:, None] - largest).clamp_(max=0) - rest)
        torch.sub(by_row[..., : self._band.shape[-1]], largest, out=self._band)
        if log_sum is not None:
            self._band.sub_(rest)
        if self._below is not None:
            below = torch.ones(self._below.shape[1:], dtype=torch.bool, device=largest.device).triu(self._diagonal)
            self._below.copy_(torch.where(below, by_row[..., -1:] - largest - rest, self._below))

    def add(self, by_row: Tensor) -> None:
        """Adds by_row (N, m or 1, R) to the scores of the pairs at each row's distance."""
        self._band.add_(by_row[..., : self._band.shape[-1]])
        if self._below is not None:
            self._below.add_(by_row[..., -1:].expand(self._below.shape).triu(self._diagonal))

    def collect(self) -> Tensor:
        """(N, m, R): what stands at the pairs of each row's distance, the opposite of `add`. May be a view."""
        for side in self._room:
            side.zero_()
        if self._below is None:
            return self._band
        heads, queries, _ = self.scores.shape
        by_row = self.scores.new_zeros(heads, queries, self.rows.stop - self.rows.start)
        by_row[..., : self._band.shape[-1]] = self._band
        by_row[..., -1] += self._below.triu(self._diagonal).sum(-1)
        return by_row
