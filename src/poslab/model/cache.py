"""Keys and values of the tokens read so far, so that a new token costs one position and not the whole text again.

B batch, H heads, T new tokens, N keys that they may see, Dh head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention import PositionIds, SchemeLayer
from poslab.attention.documents import Documents, positions_within
from poslab.errors import SettingError
from poslab.positions import RelativeTerms

# From distances to each layer's terms for them.
MakeTerms = Callable[[range], list[RelativeTerms | None]]


class KeyValueCache:
    """Cache of a text's keys and values between calls of a GPT: model(tokens, cache) continues after the last.

    window: a query sees the last `window` keys, itself included; older ones are dropped. Positions count on.
    padding: (B,) whole numbers: so many tokens at the start of each row are none, where texts of unequal length end
        together. A row's positions count from its first real token.
    positions: (B, N), rising: those of a row's first N real tokens, which are all that it may read; None: 0, 1, 2, ...

    A cache belongs to one text, and to the parameters that the model had when it was first used.
    """

    def __init__(
        self, window: int | None = None, padding: Tensor | None = None, positions: Tensor | None = None
    ) -> None:
        self.window = window
        self.most_seen = window  # tokens, by any query
        self.length = 0  # tokens read, padding and what was dropped included
        self._padding = padding if padding is not None and padding.any() else None
        self._least_padding, self._most_padding = (0, 0) if padding is None else map(int, padding.aminmax())
        self._positions = positions
        self._explicit: Tensor | None = None  # (length,) or (B, length): positions, where they were given
        self.documents: Tensor | None = None  # (B, length): numbers of the tokens' documents, where they were given
        self._tokens: Tensor | None = None  # (B, N): ids of the text so far
        self.read: list[LayerCache] = []
        self._terms: list[RelativeTerms | None] = []
        self._distances = range(0)  # those that the terms were made for
        self.key_position_ids: PositionIds | None = None  # of all keys that the tokens being read may see

    def position_ids(
        self, count: int, device: torch.device, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> PositionIds:
        """Return the positions of the next `count` tokens, (T,), or (B, T) where rows differ, padding being at 0.

        positions: theirs, if not 0, 1, 2, ...; documents: (B, T), the numbers of their documents, if rows hold
        several. Each is to be given at every call or at none.
        """
        self.documents = self._with_documents(documents)
        if (positions is None) != (self._explicit is None) and self.length > 0:
            raise SettingError("positions", positions, "must be given for all of a text's tokens, or for none")
        if positions is not None:
            new = PositionIds.explicit(positions.to(device)).positions
            self._explicit = new if self._explicit is None else torch.cat([self._explicit, new], dim=-1)
        self.key_position_ids = self._ids(self.first_seen, self.length + count, device)
        return self._ids(self.length, self.length + count, device)

    def _with_documents(self, new: Tensor | None) -> Tensor | None:
        """Return the numbers of the documents of all tokens, (B, N), the new ones last."""
        earlier = self.documents
        if (new is None) != (earlier is None) and self.length > 0:
            problem = "must be given for all of a text's tokens, or for none"
            raise SettingError("documents", None if new is None else "[...]", problem)
        if new is not None and self._padding is not None:  # which is no part of the first document
            indices = torch.arange(self.length, self.length + new.shape[1], device=new.device)
            lowest = int(new.min()) if earlier is None else int(earlier.min()) + 1
            new = new.masked_fill(indices < self._padding.to(new.device)[:, None], lowest - 1)
        if new is None or earlier is None:
            return new
        if (new[:, 0] < earlier[:, -1]).any():
            raise SettingError("documents", "[...]", "must go on from those read before, and never fall")
        return torch.cat([earlier, new], dim=1)

    def _ids(self, begin: int, end: int, device: torch.device) -> PositionIds:
        documents = None if self.documents is None else self.documents[:, begin:end]
        if self._explicit is not None:
            irregular = bool((self._explicit.diff() != 1).any())
            return PositionIds(self._explicit[..., begin:end], irregular, documents)
        positions = self.counted(begin, end, device)
        if self._positions is None:
            return PositionIds(positions, documents=documents)
        own = self._positions.to(device)
        return PositionIds(own.gather(1, positions.expand(len(own), -1)), irregular=True, documents=documents)

    def counted(self, begin: int, end: int, device: torch.device) -> Tensor:
        """Return the numbers of tokens from `begin` to `end` in their texts, (T,), or (B, T) where rows differ."""
        if self.documents is not None:
            return positions_within(self.documents)[:, begin:end]
        numbers = torch.arange(begin, end, device=device)
        return numbers if self._padding is None else (numbers - self._padding.to(device)[:, None]).clamp(min=0)

    def positions_after(self, count: int, documents: Tensor | None = None) -> int:
        """Return how many tokens with positions of their own the longest text has once `count` more tokens are read."""
        if documents is not None:
            all_documents = self._with_documents(documents)
            assert all_documents is not None  # the new ones are there
            return int(positions_within(all_documents).max()) + 1
        return self.length + count - self._least_padding

    def terms(self, count: int, longest: int | None, make_terms: MakeTerms) -> list[RelativeTerms | None]:
        """Return each layer's terms for `count` more tokens, whose positions are known.

        Made when the distances outgrow them, for twice as many, but never for more than `longest`.
        """
        if self._explicit is not None:
            needed = self._ids(self.first_seen, self.length + count, self._explicit.device).distances(causal=True)
        elif self._positions is not None:
            needed = range(PositionIds(self._positions).stop)
        else:
            limits = [limit for limit in (self.most_seen, longest) if limit is not None]
            read = self.length + count if self.documents is None else int(positions_within(self.documents).max()) + 1
            read = max(1, read)  # because there is a distance of 0 before the first token, too
            needed = range(min(read, *limits) if limits else read)
            if needed.stop > self._distances.stop:
                needed = range(min(2 * needed.stop, *limits) if limits else 2 * needed.stop)
        if needed.stop > self._distances.stop or needed.start < self._distances.start:
            self._distances = needed
            self._terms = make_terms(needed)
        return self._terms

    def layers(self, layers: Sequence[SchemeLayer]) -> Sequence[SchemeLayer]:
        """Return the layers with what the cache has read in each."""
        self.read = self.read or [LayerCache() for _ in layers]
        return [
            CachedLayer(**vars(layer), cache=self, read=read) for layer, read in zip(layers, self.read, strict=True)
        ]

    @property
    def first_seen(self) -> int:
        """Index of the first key that the next query sees."""
        return 0 if self.window is None else max(0, self.length + 1 - self.window)

    def text_so_far(self, tokens: Tensor) -> Tensor:
        """Append the next tokens (B, T) to the ids of their text so far, (B, N), and return these."""
        new = self.without_padding(tokens, -1)
        self._tokens = new if self._tokens is None else torch.cat([self._tokens, new], dim=1)
        return self._tokens

    def without_padding(self, x: Tensor, value: float = 0.0) -> Tensor:
        """Replace padding among the next tokens, x (B, T) or (B, T, D), by a value."""
        if self._padding is None or self._most_padding <= self.length:
            return x
        indices = torch.arange(self.length, self.length + x.shape[1], device=x.device)
        padding = indices < self._padding.to(x.device)[:, None]  # (B, T)
        return x.masked_fill(padding if x.dim() == 2 else padding[..., None], value)

    def first_key(self, device: torch.device) -> Tensor | None:
        """Return the first key, from `first_seen` on, that each row sees at all, (B,); None where all rows see all."""
        if self._padding is None or self._most_padding <= self.first_seen:
            return None
        return (self._padding.to(device) - self.first_seen).clamp(min=0)


class Rows:
    """Tensor (B, H, N, n) that grows at its end and is dropped from its beginning, both cheap on average."""

    def __init__(self) -> None:
        self.buffer: Tensor | None = None  # (B, H, capacity, n)
        self._begin, self._end = 0, 0  # numbers of the rows that the buffer holds, counted from the first ever

    def extend(self, rows: Tensor, first: int) -> Tensor:
        """Append rows (B, H, T, n), drop those before number `first`, and return the rest, the new ones last."""
        count, kept, begin = rows.shape[-2], self._end - first, first - self._begin
        buffer, old = self.buffer, self.buffer
        if buffer is None or begin + kept + count > buffer.shape[-2]:
            self.buffer = buffer = rows.new_empty(*rows.shape[:2], 2 * (kept + count), rows.shape[-1])
            if old is not None:
                buffer[:, :, :kept] = old[:, :, begin : begin + kept]
            self._begin, begin = first, 0
        buffer[:, :, begin + kept : begin + kept + count] = rows
        self._end += count
        return buffer[:, :, begin : begin + kept + count]


@dataclass(eq=False)
class LayerCache:
    """Keys, values and token states of one layer, and what entered `mix` last."""

    keys: Rows = field(default_factory=Rows)
    values: Rows = field(default_factory=Rows)
    token_states: Rows = field(default_factory=Rows)
    entered: Tensor | None = None  # (B, K - 1, D)


@dataclass(frozen=True, eq=False, kw_only=True)
class CachedLayer(SchemeLayer):
    """Scheme in one layer, for tokens at the end of a text whose beginning the cache has read."""

    cache: KeyValueCache
    read: LayerCache

    def mix(self, x: Tensor) -> Tensor:
        """Apply the scheme's hook `mix` to new tokens, x (B, T, D), after those before them, (B, T, D)."""
        if not self.overrides("mix"):
            return x
        x, before = self.cache.without_padding(x), self.read.entered
        before = x.new_zeros(len(x), self.scheme.mixed_tokens - 1, x.shape[-1]) if before is None else before
        rows, numbers = torch.cat([before, x], dim=1), self.cache.documents
        self.read.entered = rows[:, x.shape[1] :]
        if numbers is None:
            return self.mix_after(before, x)
        numbers = numbers[:, -rows.shape[1] :]
        # Before the first document stand rows of none.
        numbers = F.pad(numbers, (rows.shape[1] - numbers.shape[1], 0), value=int(numbers.min()) - 1)
        documents = Documents(numbers, x.shape[1])
        return documents.apart(lambda _, x, rows: self.mix_after(None, rows)[:, rows.shape[1] - x.shape[1] :], x, rows)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor | None, first: int = 0, **settings: Any) -> Tensor:
        """Return attention of new tokens, x (B, T, D), over all that they may see, without dropout."""
        q, k, token_state = self.apply_hooks(q, k, x)
        cache, seen_from = self.cache, self.cache.first_seen
        keys, values = self.read.keys.extend(k, seen_from), self.read.values.extend(v, seen_from)
        states = None if token_state is None else self.read.token_states.extend(token_state, seen_from)
        seen: dict[str, Any] = {"window": cache.window, "first_key": cache.first_key(q.device), "cached": True}
        return self.over_keys(q, keys, values, states, cache.key_position_ids, **seen)
