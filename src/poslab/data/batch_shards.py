"""Shards of batches: each of several processes takes one, and together they train and validate as one alone would.

Every process knows the whole order. Of a training batch it takes its rows, in one piece; of a validation every n-th
batch, whole, so that the sums of each are rounded as they are in one process.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from poslab.tasks.base import IGNORED


class BatchShard(NamedTuple):
    """One process's rows of a training batch; their share of the whole batch's targets, 0 to 1, by which their mean
    loss counts; the number of all its tokens; which of its rows is the first here; and of a stream, what each row has
    read, as in `Segments`."""

    tokens: Tensor  # (b, T)
    targets: Tensor  # (b, T)
    positions: Tensor | None
    share: float
    batch_tokens: int
    first_row: int
    read: Tensor | None = None  # (b,)


class BatchShards(Dataset[BatchShard]):
    """Data set of one process's part of each batch, of rows by lists of indices or, with `of_batches`, of batches."""

    def __init__(self, source: Any, rank: int, world_size: int, of_batches: bool = False) -> None:
        self.source = source
        self.rank = rank
        self.world_size = world_size
        self.of_batches = of_batches

    def __getitem__(self, index: Any) -> BatchShard:
        if self.of_batches:
            return self._of_batch(*self.source[index])
        rows = shard_rows(len(index), self.rank, self.world_size)
        own = index[rows]  # the others' need not be read
        windows = [self.source[i] for i in own or index[:1]]  # with none there would be no gradient
        tokens, targets, *read = (torch.stack(column) for column in zip(*windows, strict=True))
        return BatchShard(tokens, targets, None, len(own) / len(index), len(index) * tokens.shape[1], rows.start, *read)

    def _of_batch(self, tokens: Tensor, targets: Tensor, positions: Tensor | None) -> BatchShard:
        rows = shard_rows(len(tokens), self.rank, self.world_size)
        share = float((targets[rows] != IGNORED).sum() / (targets != IGNORED).sum())
        # Rows without targets have no mean loss: any will do.
        rows = rows if share else slice(None)
        part = None if positions is None else positions[rows]
        return BatchShard(tokens[rows], targets[rows], part, share, tokens.numel(), rows.start or 0)


def shard_rows(rows: int, rank: int, world_size: int) -> slice:
    """Return the rows of a batch that are one process's."""
    return slice(rows * rank // world_size, rows * (rank + 1) // world_size)


def shard_indices(batches: int, rank: int, world_size: int) -> Sequence[int]:
    """Return the numbers of the validation batches that are this process's, as many as each other's, which all wait for
    each other: some come twice where there are too few, and count once."""
    own = range(rank, batches, world_size)
    missing = -(-batches // world_size) - len(own)
    return own if not missing else [*own, *[0] * missing]
