"""Cache of texts that are read in segments: the same hidden states as segment by segment, however the tokens come.

B batch, T new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from poslab.attention import SchemeLayer
from poslab.errors import SettingError
from poslab.model.cache import CachedLayer, KeyValueCache
from poslab.model.memory.retrieval import CachedLookup, RetrievedAttention
from poslab.model.memory.segments import LayerMemory, SegmentLayer


class SegmentCache(KeyValueCache):
    """Cache by which a query sees its own segment and the last `memory_length` tokens before that.

    segment: tokens of each. positions: as of KeyValueCache. Raises SettingError for texts of unequal length.
    """

    def __init__(
        self,
        segment: int,
        memory_length: int,
        retrieval: RetrievedAttention | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        super().__init__(None, padding, positions)
        if padding is not None and padding.any():
            raise SettingError("padding", "[...]", "can't be given for texts that are read in segments")
        self.most_seen = segment + memory_length
        self._segment, self._memory_length, self._retrieval = segment, memory_length, retrieval
        self._lookup: CachedLookup | None = None

    def piece_lengths(self, count: int) -> list[int]:
        """Return how many of the next `count` tokens to read at a time, so that no segment begins in between."""
        edges = [0, *range(-self.length % self._segment, count, self._segment), count]
        return [later - edge for edge, later in pairwise(edges) if later > edge] or [count]

    def begin_segment(self, rows: int, device: torch.device) -> None:
        """Forget what only tokens of one segment see of each other, if the next token is the first of another."""
        if self.length % self._segment:
            return
        self._tokens = None
        for read in self.read:
            read.entered = None
        if self._lookup is not None:
            self._lookup.end_segment()
        elif self._retrieval is not None:
            none = torch.zeros(rows, dtype=torch.int64, device=device)
            self._lookup = CachedLookup(self._retrieval.settings.size, self._segment, none)

    def counted(self, begin: int, end: int, device: torch.device) -> Tensor:
        """Return the numbers of tokens, (T,) or (B, T), in their segments where none sees keys of another."""
        numbers = super().counted(begin, end, device)
        if self._memory_length:
            return numbers
        return numbers.minimum(torch.arange(begin, end, device=device) % self._segment)

    def positions_after(self, count: int, documents: Tensor | None = None) -> int:
        positions = super().positions_after(count, documents)
        return positions if self._memory_length else min(positions, self._segment)

    @property
    def first_seen(self) -> int:
        return max(0, self.length // self._segment * self._segment - self._memory_length)

    def layers(self, layers: Sequence[SchemeLayer]) -> Sequence[SchemeLayer]:
        memory = LayerMemory(retrieval=self._retrieval, lookup=self._lookup)
        return [CachedSegmentLayer(**vars(layer), memory=memory) for layer in super().layers(layers)]


@dataclass(frozen=True, eq=False, kw_only=True)
class CachedSegmentLayer(SegmentLayer, CachedLayer):
    """Scheme in one layer by a SegmentCache; memory: what the layer that retrieves looks up."""
