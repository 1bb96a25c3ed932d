"""Tile of scores of one block of queries, to whose band of diagonals near tables are added in place."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from poslab.attention.blocks import ALIGNED, BLOCK, QueryBlock
from poslab.attention.kernels.near_tables import LOG2_E, NearTables
from poslab.attention.kernels.products import unrounded


def storage_size(block: QueryBlock) -> int:
    """Return how many numbers the tile of a block takes at most, for one head."""
    return block.queries * (block.keys + 2 * (block.queries + ALIGNED))


def limits_of_scores(like: Tensor, size: int) -> Tensor:
    """Return limits (size, 2 size): inf, but -inf for query i from column size + i on. Clamping beats a mask."""
    column = torch.arange(-size, size, device=like.device)
    hidden = column >= torch.arange(size, device=like.device)[:, None]
    return torch.full(hidden.shape, math.inf, dtype=like.dtype, device=like.device).masked_fill_(hidden, -math.inf)


class BandTile:
    """Scores (N, m, n) of a block, stored so that the diagonals of the near rows are a view.

    rows: which near rows occur in the block, as a slice; (N, m, R) below has a column for each of them.
    """

    def __init__(self, storage: Tensor, heads: int, block: QueryBlock, near: NearTables, causal: bool) -> None:
        # Near row c has distance highest - 1 - c: the block's first query meets it at key key_of_row_0 + c, and each
        # next query one key further on. Those rows are the band's that any query of the block meets at a key.
        key_of_row_0 = block.position - near.highest + 1
        first_row = max(0, 1 - block.queries - key_of_row_0)
        end_row = max(first_row, min(near.count, block.keys - key_of_row_0))
        width = end_row - first_row

        # The band is a parallelogram: where it sticks out of the scores, there must be room beside them.
        room_left = max(0, -(key_of_row_0 + first_row)) if width else 0
        room_left += -room_left % ALIGNED
        room_right = max(0, key_of_row_0 + end_row + block.queries - 1 - block.keys) if width else 0
        row_length = room_left + block.keys + room_right
        padded = storage[: heads * block.queries * row_length].view(heads, block.queries, row_length)
        self.scores = padded[..., room_left : room_left + block.keys]
        self._room = [x for x in (padded[..., :room_left], padded[..., room_left + block.keys :]) if x.numel()]

        # A view of its rows, of which each begins one number further right than that of the query before.
        self._first = key_of_row_0 + first_row  # the key at which the first query meets the band
        begin = room_left + self._first if width else 0
        self._band = padded.as_strided((heads, block.queries, width), (padded.stride(0), row_length + 1, 1), begin)

        # Keys at distances below `lowest` share the last near row; the block's first query has them from here on.
        first_below = block.position - near.lowest + 1
        self._below = None
        if near.count and first_below < block.keys and (not causal or near.lowest > 0):
            self._keys_below = slice(max(0, first_below), block.keys)
            self._below = self.scores[..., self._keys_below]
            self._diagonal = min(0, first_below)
            first_row, end_row = min(first_row, near.count - 1), near.count
        self.rows = slice(first_row, end_row)

    def add_bias(self, near: NearTables, largest: Tensor, far: bool) -> None:
        """Add to each score its pair's bias less `largest` (N, m or 1, 1), in powers of two.

        far: whether that leaves something to add to the far keys.
        What is added for pairs that the query doesn't see is of no meaning.
        """
        assert near.bias is not None
        assert near.far_bias is not None
        of_far = (near.far_bias[:, None] - largest) * LOG2_E  # (N, m or 1, 1)
        by_row = (near.bias[:, None, self.rows] - largest) * LOG2_E  # (N, m or 1, R)
        width = self._band.shape[-1]
        if far:
            whole, corner, diagonal = self._far()
            whole.add_(of_far)
            corner.add_(of_far.expand(corner.shape).tril(diagonal))
        self._band.add_(by_row[..., :width])
        if self._below is not None:
            self._below.add_(by_row[..., -1:].expand(self._below.shape).triu(self._diagonal))

    @unrounded()
    def add_by_query(self, queries: Tensor, table: Tensor) -> None:
        """Add queries (N, m, Dh) times table (N, R, Dh) to the scores of the pairs at each row's distance."""
        # A matrix whose rows are a stride apart is what a product can be added to as it stands.
        self._band.baddbmm_(queries, table[:, : self._band.shape[-1]].transpose(1, 2))
        if self._below is not None:
            by_row = queries @ table[:, -1:].transpose(1, 2)  # (N, m, 1)
            self._below.add_(by_row.expand(self._below.shape).triu(self._diagonal))

    @unrounded()
    def add_by_key(self, table: Tensor, k: Tensor, factor: float) -> None:
        """Add factor * table (N, R, Dh) times k (N, n, Dh) to the scores of the pairs at each row's distance."""
        for rows, keys, by_key, diagonals in self._by_key():
            by_key.baddbmm_(table[:, rows], k[:, keys].transpose(1, 2), beta=0, alpha=factor)
            self._band[..., rows].add_(diagonals)
        if self._below is not None:
            by_key = table[:, -1:] @ k[:, self._keys_below].transpose(1, 2) * factor  # (N, 1, n')
            self._below.add_(by_key.expand(self._below.shape).triu(self._diagonal))

    def collect(self) -> Tensor:
        """Return the tile's numbers by query and row of the tables, (N, m, R). May be a view."""
        for side in self._room:
            side.zero_()
        if self._below is None:
            return self._band
        heads, queries, _ = self.scores.shape
        by_row = self.scores.new_zeros(heads, queries, self.rows.stop - self.rows.start)
        by_row[..., : self._band.shape[-1]] = self._band
        by_row[..., -1] += self._below.triu(self._diagonal).sum(-1)
        return by_row

    def sum_of_far(self) -> Tensor:
        """Return the sum of the tile's numbers of far pairs, (N, 1)."""
        whole, corner, diagonal = self._far()
        return (whole.sum((1, 2)) + corner.tril(diagonal).sum((1, 2)))[:, None]

    @unrounded()
    def collect_by_key(self, table: Tensor, k: Tensor, grad_table: Tensor, grad_k: Tensor) -> None:
        """Add the gradients of table (N, R, Dh) and k (N, n, Dh) in `add_by_key`, whose tile has the gradients."""
        for rows, keys, by_key, diagonals in self._by_key():
            by_key.zero_()
            diagonals.copy_(self._band[..., rows])
            grad_table[:, rows].baddbmm_(by_key, k[:, keys])
            grad_k[:, keys].baddbmm_(by_key.transpose(1, 2), table[:, rows])
        if self._below is not None:
            keys = self._keys_below
            by_key = self._below.triu(self._diagonal).sum(1, keepdim=True)  # (N, 1, n')
            grad_table[:, -1:].baddbmm_(by_key, k[:, keys])
            grad_k[:, keys].baddbmm_(by_key.transpose(1, 2), table[:, -1:])

    def hide(self, block: QueryBlock, causal: bool, window: int | None, limits: Tensor) -> None:
        """Set the scores of hidden pairs to -inf; limits: from `limits_of_scores`."""
        size, limits, reach = len(limits), limits[: block.queries], 1 if causal else window
        if reach is not None:
            first = block.position + reach  # the key that the block's first query is the first not to see
            begin = max(0, first - 1)
            later = self.scores[..., begin:]
            later.clamp_(max=limits[:, size + begin - first :][:, : later.shape[-1]])
        if window is not None:
            first = block.position - window + 1  # the key that it is the first to see
            earlier = self.scores[..., : max(0, first + block.queries - 1)]
            earlier.clamp_(max=-limits[:, size - first :][:, : earlier.shape[-1]])

    def _far(self) -> tuple[Tensor, Tensor, int]:
        """Return the scores of keys that are far from all queries (N, m, n'), those of keys that are far from some of
        them, (N, m, n''), and the diagonal up to which they are."""
        _, queries, keys = self.scores.shape
        near = self._band.shape[-1] > 0
        if not near and self._below is not None:  # all keys are nearer than the band
            return self.scores[..., :0], self.scores[..., :0], 0
        # Keys before this one are far from all queries; from there on, each query's are one more.
        edge = max(0, self._first) if near else keys
        corner = self.scores[..., edge : max(edge, self._first + queries - 1)]
        return self.scores[..., :edge], corner, min(0, self._first) - 1

    def _by_key(self) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
        """Yield the band in pieces: rows, keys, room for products (N, rows, keys), and the view of it (N, m, rows)."""
        heads, queries, width = self._band.shape
        for start in range(0, width, BLOCK):
            rows = slice(start, min(width, start + BLOCK))
            count = rows.stop - start
            reach = count + queries - 1
            room = self.scores.new_empty(heads, count, reach)
            # Query i meets row c at key first + i + c.
            diagonals = room.as_strided((heads, queries, count), (room.stride(0), 1, reach + 1))
            first = self._first + start
            keys = slice(max(0, first), min(self.scores.shape[-1], first + reach))
            yield rows, keys, room[..., keys.start - first : keys.stop - first], diagonals
