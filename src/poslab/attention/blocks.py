"""Blocks of queries, by which kernels compute, and dropout of attention weights, drawn block by block: the
reference and every kernel, forward and backward, draw the same masks and store none."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

BLOCK = 128  # queries; on two cores 64 and 256 are slower at nearly every length
# Rows of a matrix that begin at multiples of this are multiplied and reduced up to three times as fast on a CPU.
ALIGNED = 16


@dataclass(frozen=True)
class QueryBlock:
    """Neighbouring queries, and the keys from the first that any of them sees, or a little before, to the last."""

    number: int
    first_query: int
    queries: int  # m
    first_key: int
    keys: int  # n
    position: int  # of the first query, counted from the block's first key

    @property
    def rows(self) -> slice:
        return slice(self.first_query, self.first_query + self.queries)

    @property
    def columns(self) -> slice:
        return slice(self.first_key, self.first_key + self.keys)

    def without_keys_before(self, key: int) -> "QueryBlock":
        """Drop earlier keys, but for a few that keep rows of the tile aligned, and for those that queries stand at."""
        less = min(max(0, key - self.first_key), max(0, self.position))
        less -= less % ALIGNED
        return replace(self, first_key=self.first_key + less, keys=self.keys - less, position=self.position - less)


def query_blocks(
    query_length: int, key_length: int, offset: int, causal: bool, window: int | None = None, size: int = BLOCK
) -> Iterator[QueryBlock]:
    """Yield the blocks, of `size` queries, of all queries that see a key; offset and window as in `attend`."""
    first_seeing = max(0, -offset) if causal else 0
    for number, first in enumerate(range(first_seeing, query_length, size)):
        queries = min(size, query_length - first)
        begin, end = 0, key_length
        if causal:
            end = min(end, offset + first + queries)
        if window is not None:
            begin = min(max(0, offset + first - window + 1), end)
            end = end if causal else max(begin, min(end, offset + first + queries - 1 + window))
        if begin < end:
            begin -= begin % ALIGNED
            yield QueryBlock(number, first, queries, begin, end - begin, offset + first - begin)


# Dropout


@dataclass(frozen=True)
class WeightDropout:
    """Drop each attention weight with probability p and scale the rest by 1 / (1 - p).

    The factors of a block of queries come from a generator seeded with the call's seed and the block's number, so they
    can be drawn again, and never exist for all pairs at once. The call's seed is one draw from torch's default CPU
    generator: at one seed, all schemes see the same masks.
    """

    p: float
    device: torch.device
    seed: int = field(default_factory=lambda: int(torch.randint(2**62, ())))

    def factors(self, block: QueryBlock, like: Tensor) -> Tensor:
        """Return 0 or 1 / (1 - p) for each weight of the block (..., m, n), equal at every call."""
        generator = torch.Generator(self.device).manual_seed(self.seed + block.number)
        # A uniform 32-bit number per weight, drawn in pairs: on a CPU three times as fast as bernoulli_().
        pairs = torch.empty((like.numel() + 1) // 2, dtype=torch.int64, device=self.device)
        uniform = pairs.random_(-(2**63), None, generator=generator).view(torch.int32)[: like.numel()].view(like.shape)
        first_kept = min(round(self.p * 2**32), 2**32 - 1) - 2**31
        factors = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        return torch.ge(uniform, first_kept, out=factors).mul_(1 / (1 - self.p))
