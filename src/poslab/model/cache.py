"""Keys and values of the tokens read so far, so that a new token costs one position and not the whole text again.

B batch, H heads, T new tokens, N keys that they may see, Dh head dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from poslab.attention import PositionIds, SchemeLayer
from poslab.errors import SettingError
from poslab.model.memory.retrieval import CachedLookup, Lookup
from poslab.positions import RelativeTerms

# From distances to each layer's terms for them.
MakeTerms = Callable[[range], list[RelativeTerms | None]]


class KeyValueCache:
    """Cache of a text's keys and values between calls of a GPT: model(tokens, cache) continues after the last.

    window: a query sees the last `window` keys, itself included; older ones are dropped. Positions count on.
    padding: (B,) whole numbers: so many tokens at the start of each row are none, where texts of unequal length end
        together. A row's positions count from its first real token.
    positions: (B, N), rising: those of a row's first N real tokens, which are all that it may read; None: 0, 1, 2, ...
    segment: in place of a window and padding: texts are read in segments of so many tokens, and a query sees its own
        segment and the last `memory_length` tokens before that.

    A cache belongs to one text, and to the parameters that the model had when it was first used.
    """

    def __init__(
        self,
        window: int | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        segment: int | None = None,
        memory_length: int = 0,
    ) -> None:
        self.window = window
        self.segment, self._memory_length = segment, memory_length
        self.length = 0  # tokens read, padding and what was dropped included
        self._padding = padding if padding is not None and padding.any() else None
        self._least_padding, self._most_padding = (0, 0) if padding is None else map(int, padding.aminmax())
        if segment is not None and self._most_padding:
            raise SettingError("padding", "[...]", "can't be given for texts that are read in segments")
        self._positions = positions
        self._given: Tensor | None = None  # (length,) or (B, length): positions, where they were given
        self._tokens: Tensor | None = None  # (B, N): ids, where the scheme looks at them
        self._layers: list[LayerCache] = []
        self._terms: list[RelativeTerms | None] = []
        self._distances = range(0)  # those that the terms were made for
        self.key_position_ids: PositionIds | None = None  # of all keys that the tokens being read may see

    def parts(self, count: int) -> list[int]:
        """Return how many of the next `count` tokens to read at a time, so that no segment begins in between."""
        if self.segment is None:
            return [count]
        edges = [0, *range(-self.length % self.segment, count, self.segment), count]
        return [later - edge for edge, later in pairwise(edges) if later > edge] or [count]

    def position_ids(self, count: int, device: torch.device, given: Tensor | None = None) -> PositionIds:
        """Return the positions of the next `count` tokens, (T,), or (B, T) where rows differ, padding being at 0.

        given: their positions, if not 0, 1, 2, ...; to be given at every call or at none.
        """
        if (given is None) != (self._given is None) and self.length > 0:
            raise SettingError("positions", given, "must be given for all of a text's tokens, or for none")
        if given is not None:
            new = PositionIds.given(given.to(device)).positions
            self._given = new if self._given is None else torch.cat([self._given, new], dim=-1)
        self.key_position_ids = self._ids(self.first_seen, self.length + count, device)
        return self._ids(self.length, self.length + count, device)

    def _ids(self, begin: int, end: int, device: torch.device) -> PositionIds:
        if self._given is not None:
            return PositionIds(self._given[..., begin:end], irregular=bool((self._given.diff() != 1).any()))
        positions = torch.arange(begin, end, device=device)
        if self._padding is not None:
            positions = (positions - self._padding.to(device)[:, None]).clamp(min=0)
        if self._apart is not None:
            positions = positions % self._apart
        if self._positions is None:
            return PositionIds(positions)
        own = self._positions.to(device)
        return PositionIds(own.gather(1, positions.expand(len(own), -1)), irregular=True)

    @property
    def _apart(self) -> int | None:
        """Length of segments of which none sees keys of another, so that positions begin anew in each; else None."""
        return None if self._memory_length else self.segment

    def positions_after(self, count: int) -> int:
        """Return how many tokens with positions of their own the longest row has once `count` more tokens are read."""
        positions = self.length + count - self._least_padding
        return positions if self._apart is None else min(positions, self._apart)

    def terms(self, count: int, longest: int | None, make_terms: MakeTerms) -> list[RelativeTerms | None]:
        """Return each layer's terms for `count` more tokens, whose positions are known.

        Made when the distances outgrow them, for twice as many, but never for more than `longest`.
        """
        if self._given is not None:
            needed = PositionIds(self._given[..., self.first_seen :], irregular=True).distances(causal=True)
        elif self._positions is not None:
            needed = range(int(self._positions.max()) + 1)
        else:
            seen = self.window if self.segment is None else self.segment + self._memory_length
            limits = [limit for limit in (seen, longest) if limit is not None]
            needed = range(min(self.length + count, *limits) if limits else self.length + count)
            if needed.stop > self._distances.stop:
                needed = range(min(2 * needed.stop, *limits) if limits else 2 * needed.stop)
        if needed.stop > self._distances.stop or needed.start < self._distances.start:
            self._distances = needed
            self._terms = make_terms(needed)
        return self._terms

    def layers(self, number: int) -> list[LayerCache]:
        """Return the `number` layers' caches."""
        self._layers = self._layers or [LayerCache(self) for _ in range(number)]
        return self._layers

    @property
    def first_seen(self) -> int:
        """Index of the first key that the next query sees."""
        if self.segment is not None:
            return max(0, self.length // self.segment * self.segment - self._memory_length)
        return 0 if self.window is None else max(0, self.length + 1 - self.window)

    def text_so_far(self, tokens: Tensor) -> Tensor:
        """Append the next tokens (B, T) to the ids of their text or segment so far, (B, N), and return these."""
        new = self.without_padding(tokens, -1)
        self._tokens = new if self._tokens is None or self.begins_segment else torch.cat([self._tokens, new], dim=1)
        return self._tokens

    def without_padding(self, x: Tensor, value: float = 0.0) -> Tensor:
        """Replace padding among the next tokens, x (B, T) or (B, T, D), by a value."""
        if self._padding is None or self._most_padding <= self.length:
            return x
        indices = torch.arange(self.length, self.length + x.shape[1], device=x.device)
        padding = indices < self._padding.to(x.device)[:, None]  # (B, T)
        return x.masked_fill(padding if x.dim() == 2 else padding[..., None], value)

    @property
    def begins_segment(self) -> bool:
        """True if the next token is the first of a text or of a segment."""
        return self.length % self.segment == 0 if self.segment else self.length == 0

    def first_key(self, device: torch.device) -> Tensor | None:
        """Return the first key, from `first_seen` on, that each row sees at all, (B,); None where all rows see all."""
        if self._padding is None or self._most_padding <= self.first_seen:
            return None
        return (self._padding.to(device) - self.first_seen).clamp(min=0)


class LayerCache:
    """Keys, values and token states of one layer, and what entered `mix` last."""

    def __init__(self, whole: KeyValueCache) -> None:
        self._whole = whole
        self._keys, self._values, self._token_states = Rows(), Rows(), Rows()
        self._lookup: CachedLookup | None = None
        self._entered: Tensor | None = None  # (B, K - 1, D)

    def mix(self, x: Tensor, layer: SchemeLayer) -> Tensor:
        """Apply the scheme's hook `mix` to new tokens, x (B, T, D), after those before them, (B, T, D)."""
        x, count = self._whole.without_padding(x), layer.scheme.mixed_tokens - 1
        before = x.new_zeros(len(x), count, x.shape[-1])
        if self._entered is not None and not self._whole.begins_segment:
            before = self._entered
        self._entered = torch.cat([before, x], dim=1)[:, x.shape[1] :]
        return layer.mix(x, before)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, token_state: Tensor | None, layer: SchemeLayer) -> Tensor:
        """Return attention of new tokens, with q, k, v (B, H, T, Dh), over all that they may see, (B, H, T, Dh)."""
        whole, first = self._whole, self._whole.first_seen
        keys, values = self._keys.extend(k, first), self._values.extend(v, first)
        states = None if token_state is None else self._token_states.extend(token_state, first)
        settings = {"window": whole.window, "first_key": whole.first_key(q.device), "cached": True}
        return layer.attend(q, keys, values, states, whole.key_position_ids, **settings)

    def lookup(self, rows: int, size: int, device: torch.device) -> Lookup | None:
        """Return the lookup of a layer that retrieves; None where there are no segments before the tokens' own."""
        if self._whole.segment is None:
            return None
        if self._lookup is None:
            self._lookup = CachedLookup(size, self._whole.segment, torch.zeros(rows, dtype=torch.int64, device=device))
        if self._whole.begins_segment:
            self._lookup.end_segment()
        return self._lookup


class Rows:
    """Tensor (B, H, N, n) that grows at its end and is dropped from its beginning, both cheap on average."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None  # (B, H, capacity, n)
        self._begin, self._end = 0, 0  # numbers of the rows that the buffer holds, counted from the first ever

    def extend(self, rows: Tensor, first: int) -> Tensor:
        """Append rows (B, H, T, n), drop those before number `first`, and return the rest, the new ones last."""
        count, kept, begin = rows.shape[-2], self._end - first, first - self._begin
        buffer, old = self._buffer, self._buffer
        if buffer is None or begin + kept + count > buffer.shape[-2]:
            self._buffer = buffer = rows.new_empty(*rows.shape[:2], 2 * (kept + count), rows.shape[-1])
            if old is not None:
                buffer[:, :, :kept] = old[:, :, begin : begin + kept]
            self._begin, begin = first, 0
        buffer[:, :, begin + kept : begin + kept + count] = rows
        self._end += count
        return buffer[:, :, begin : begin + kept + count]
