"""In which order a run comes to its windows, or to the steps of a task."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Sampler

from poslab.data.permutation import Permutation


class Indices(Protocol):
    """Indices by their places, of which never more are there than are asked for."""

    def __getitem__(self, places: slice, /) -> Tensor: ...


class ResumableSampler(Sampler[int]):
    """`count` indices in an order that is known of every epoch, so that a run can go on anywhere. `start` indices of
    the epoch are left out, because a run that goes on has seen them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.epoch = 0
        self.start = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        order = self._order(epoch)
        for start in range(self.start, self.count, 1 << 16):  # a list of millions would be larger than the text
            yield from order[start : start + (1 << 16)].tolist()
        self.set_epoch(epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Makes all of this epoch come next, unless it is under way. Lightning calls it, too."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def resume_at(self, epoch: int, start: int) -> None:
        """Makes this epoch come next without its first `start` indices; all of it where none would be left."""
        self.epoch, self.start = epoch, start if start < self.count else 0

    def _order(self, epoch: int) -> Indices:
        """The indices of an epoch, int64."""
        raise NotImplementedError


class Shuffled(ResumableSampler):
    """All indices below `count`, in an order that is a function of the seed, the epoch and the count alone.

    It is the order that DataLoader(shuffle=True) draws in that epoch from one generator of that seed; of more than
    MOST_DRAWN indices, whose order would take half a gigabyte, that of a Permutation.
    """

    MOST_DRAWN = 1 << 26

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count)
        self.seed = seed

    def _order(self, epoch: int) -> Indices:
        """All epochs before are drawn, too, which takes no time beside training them."""
        if self.count > self.MOST_DRAWN:
            return Permutation(self.count, self.seed, epoch)
        generator = torch.Generator().manual_seed(self.seed)
        for number in range(epoch + 1):
            if number > 0:
                torch.randperm(self.count, generator=generator)  # RandomSampler ends with a draw for nothing
            torch.empty((), dtype=torch.int64).random_(generator=generator)  # DataLoader's seed for its workers
            order = torch.randperm(self.count, generator=generator)
        return order


class ContiguousRows(ResumableSampler):
    """The windows of a text in `rows` stretches of equal length: batch by batch, the next one of each stretch. As many
    as are left over at the end, fewer than there are rows, never come. Every epoch is the same."""

    def __init__(self, windows: int, rows: int) -> None:
        super().__init__(windows // rows * rows)
        self.rows = rows

    def __getitem__(self, places: slice) -> Tensor:
        at = torch.arange(*places.indices(self.count))
        return at % self.rows * (self.count // self.rows) + at // self.rows

    def _order(self, epoch: int) -> Indices:
        return self


class Steps(ResumableSampler):
    """The numbers of all steps, `count` in an epoch."""

    def _order(self, epoch: int) -> Indices:
        return torch.arange(epoch * self.count, (epoch + 1) * self.count)
