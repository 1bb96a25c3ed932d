"""An order of any number of things that is computed place by place, and never in memory as a whole.

A Feistel network is a permutation of all numbers of 2h bits, whatever its rounds compute (Luby and Rackoff 1988): each
turns (left, right) into (right, left xor f(right)). Here f is a hash with a key for each round, made of the seed and
the epoch. Numbers that come out beyond the count go through again until they are below it, which leaves a permutation
of those (Black and Rogaway 2002, cycle walking), after less than four times on average.
"""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 8
_FACTORS = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # of MurmurHash3's finaliser
_SHIFT = np.uint64(33)

Numbers = np.ndarray[Any, np.dtype[np.uint64]]


class Permutation:
    """All numbers below `count`, in an order that the seed and the epoch decide."""

    def __init__(self, count: int, seed: int, epoch: int) -> None:
        self.count = count
        self._half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))  # bits
        self._mask = np.uint64((1 << int(self._half)) - 1)
        keys = (hashlib.sha256(f"{seed} {epoch} {number}".encode()).digest() for number in range(_ROUNDS))
        self._keys = [np.uint64(int.from_bytes(key[:8], "little")) for key in keys]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, places: slice) -> Tensor:
        """The numbers at these places, int64, as of a list."""
        numbers = self._shuffled(np.arange(*places.indices(self.count), dtype=np.uint64))
        while (beyond := numbers >= self.count).any():
            numbers[beyond] = self._shuffled(numbers[beyond])
        return torch.from_numpy(numbers.astype(np.int64))

    def _shuffled(self, numbers: Numbers) -> Numbers:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_hash(right ^ key) & self._mask)
        return left << self._half | right


def _hash(numbers: Numbers) -> Numbers:
    for factor in _FACTORS:
        numbers = (numbers ^ numbers >> _SHIFT) * factor  # modulo 2**64
    return numbers ^ numbers >> _SHIFT
