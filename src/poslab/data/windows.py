"""Windows over one array of tokens, to train on and to measure a loss, and samplers: the order of a run's windows, or
of the steps of a task, as a function of seed, epoch and count.

Each index is computed from its position in the epoch, so a run can go on from anywhere, and no order is ever
held as a whole.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from poslab.errors import require_at_least
from poslab.metric import IGNORED


class SlidingWindowDataset(Dataset[tuple[Tensor, ...]]):
    """Sliding windows over a token array: window i starts at i * stride, while start + max_length < len(token_ids).

    Items are (input, target), both int64 of (max_length,), the target one token later. Nothing but the array is
    stored; token_ids may be any 1-D tensor, array or sequence of ints, memory-mapped or not.
    ends: where documents end that must not see each other; items have the number of each token's document, too, and
    where the next token is another document's a target of IGNORED.
    Raises SettingError for a max_length or stride below 1.
    """

    def __init__(
        self, token_ids: Tensor | Sequence[int] | Any, max_length: int, stride: int, ends: Tensor | None = None
    ) -> None:
        require_at_least(1, max_length=max_length, stride=stride)
        self.token_ids = torch.as_tensor(token_ids)
        self.max_length = max_length
        self.stride = stride
        self.ends = ends

    def __len__(self) -> int:
        starts = len(self.token_ids) - self.max_length  # every start below this has its last target
        return max(0, -(-starts // self.stride))

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = index % len(self) * self.stride
        window = self.token_ids[start : start + self.max_length + 1].to(torch.int64)
        return apart(window[:-1], window[1:], self.ends, start)


def apart(tokens: Tensor, targets: Tensor, ends: Tensor | None, start: int) -> tuple[Tensor, ...]:
    """Return tokens (T,) that begin at `start` of a text, their targets, and the numbers of their documents.

    The targets are IGNORED where the next token is another document's. ends: of the documents; None: without numbers.
    """
    if ends is None:
        return tokens, targets
    numbers = torch.searchsorted(ends, torch.arange(start, start + len(tokens) + 1), right=True)
    return tokens, targets.masked_fill(numbers[1:] != numbers[:-1], IGNORED), numbers[:-1]


class CoveringWindows(Dataset[tuple[Any, ...]]):
    """Windows that together predict all of N tokens but the first: window i begins at i * stride, the last one reaches
    the end. With stride = length every token is predicted once.

    Items are (i, input, target), the tensors int64 of (length,), the target one token later. Where the text ends before
    a window does, that is filled up with targets of IGNORED, which no loss counts. ends: as in SlidingWindowDataset.
    """

    def __init__(self, tokens: Tensor, length: int, stride: int, ends: Tensor | None = None) -> None:
        require_at_least(1, length=length, stride=stride)
        self.tokens = torch.as_tensor(tokens)
        self.length = length
        self.stride = stride
        self.ends = ends

    def __len__(self) -> int:
        after_the_first = max(0, len(self.tokens) - 1 - self.length)
        return 1 + -(-after_the_first // self.stride)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = index * self.stride
        window = self.tokens[start : start + self.length + 1].to(torch.int64)
        missing = self.length + 1 - len(window)
        tokens, targets = F.pad(window[:-1], (0, missing)), F.pad(window[1:], (0, missing), value=IGNORED)
        return index, *apart(tokens, targets, self.ends, start)


# Samplers

_BLOCK = 1 << 16  # indices computed at once: a list of millions would be larger than the text
_ROUNDS = 8
_FACTORS = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # of MurmurHash3's finaliser
_SHIFT = np.uint64(33)

Numbers = np.ndarray[Any, np.dtype[np.uint64]]


class SeekableSampler(Sampler[int]):
    """`count` indices an epoch, in an order known of every epoch, shared by `world_size` processes: each takes every
    n-th, and all as many. The first `start` of the current epoch are left out, if a run has seen them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rank, self.world_size = 0, 1
        self.epoch = 0
        self.start = 0

    def share(self, rank: int, world_size: int) -> None:
        """Take the indices of this process only."""
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        return self.count // self.world_size

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        for start in range(self.start, len(self), _BLOCK):
            own = torch.arange(start, min(start + _BLOCK, len(self)))
            yield from self.indices(epoch, own * self.world_size + self.rank).tolist()
        self.set_epoch(epoch + 1)

    def indices(self, epoch: int, positions: Tensor) -> Tensor:
        """Return the indices at these positions of an epoch, int64, of the positions' shape (N,)."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Make all of this epoch come next, unless it is under way. Lightning calls it, too."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def go_to(self, epoch: int, start: int) -> None:
        """Make this epoch come next without its first `start` indices; all of it where none would be left."""
        self.epoch, self.start = epoch, start if start < len(self) else 0


class Shuffled(SeekableSampler):
    """Random order of all indices below `count` that is a function of the seed, the epoch and the count alone.

    A Feistel network is a permutation of all numbers of 2h bits, whatever its rounds compute (Luby and Rackoff 1988):
    each turns (left, right) into (right, left xor f(right)). Here f is a hash with a key for each round, made of the
    seed and the epoch. Numbers beyond the count are permuted again until they are below it, which leaves a permutation
    of those (cycle walking, Black and Rogaway 2002), after less than four times on average.
    """

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count)
        self.seed = seed
        self._half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))  # h, in bits
        self._mask = np.uint64((1 << int(self._half)) - 1)

    def indices(self, epoch: int, positions: Tensor) -> Tensor:
        keys = [hashlib.sha256(f"{self.seed} {epoch} {number}".encode()).digest() for number in range(_ROUNDS)]
        round_keys = [np.uint64(int.from_bytes(key[:8], "little")) for key in keys]
        numbers = self._permuted(positions.numpy().astype(np.uint64), round_keys)
        while (beyond := numbers >= self.count).any():
            numbers[beyond] = self._permuted(numbers[beyond], round_keys)
        return torch.from_numpy(numbers.astype(np.int64))

    def _permuted(self, numbers: Numbers, round_keys: list[np.uint64]) -> Numbers:
        left, right = numbers >> self._half, numbers & self._mask
        for key in round_keys:
            left, right = right, left ^ (_hash(right ^ key) & self._mask)
        return left << self._half | right


class ContiguousRows(SeekableSampler):
    """Windows of a text in stretches of equal length, `rows` for each process: batch by batch, the next one of each
    stretch. As many as are left over at the end, fewer than there are rows, never come. Every epoch is the same."""

    def __init__(self, windows: int, rows: int) -> None:
        super().__init__(windows // rows * rows)
        self.windows, self.own_rows, self.rows = windows, rows, rows

    def share(self, rank: int, world_size: int) -> None:
        super().share(rank, world_size)
        self.rows = self.own_rows * world_size
        self.count = self.windows // self.rows * self.rows

    def indices(self, epoch: int, positions: Tensor) -> Tensor:
        return positions % self.rows * (self.count // self.rows) + positions // self.rows


class Steps(SeekableSampler):
    """Numbers of all steps, `count` in an epoch of each process."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.own_count = count

    def share(self, rank: int, world_size: int) -> None:
        super().share(rank, world_size)
        self.count = self.own_count * world_size

    def indices(self, epoch: int, positions: Tensor) -> Tensor:
        return epoch * self.count + positions


def _hash(numbers: Numbers) -> Numbers:
    for factor in _FACTORS:
        numbers = (numbers ^ numbers >> _SHIFT) * factor  # modulo 2**64
    return numbers ^ numbers >> _SHIFT
