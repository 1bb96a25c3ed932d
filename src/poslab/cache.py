"""Keys and values of the tokens read so far, so that a new token costs one position and not the whole text again.

B batch, H heads, T new tokens, N keys that they may see, Dh head dimension.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from poslab.attention import attend
from poslab.positions import RelativeTerms

# From a number of distances, counted from 0 on, to each layer's terms for them.
MakeTerms = Callable[[int], list[RelativeTerms | None]]


class KeyValueCache:
    """The memory of a text between calls of a GPT: model(tokens, cache) reads on where the last call stopped.

    window: a query sees the last `window` keys, itself included; older ones are dropped. Positions count on.
    padding: (B,) whole numbers: so many tokens at the start of each row are none, where texts of unequal length end
        together. A row's positions count from its first real token.

    A cache belongs to one text, and to the parameters that the model had when it was first used.
    """

    def __init__(self, window: int | None = None, padding: Tensor | None = None) -> None:
        self.window = window
        self.length = 0  # tokens read, padding and what was dropped included
        self._padding = padding if padding is not None and padding.any() else None
        self._least_padding, self._most_padding = (
            (0, 0) if padding is None else (int(padding.min()), int(padding.max()))
        )
        self._layers: list[LayerCache] = []
        self._reach = 0  # the number of distances that the layers' terms were made for

    def positions(self, count: int, device: torch.device) -> Tensor:
        """Those of the next `count` tokens: (T,), or (B, T) where rows differ, padding being at 0."""
        positions = torch.arange(self.length, self.length + count, device=device)
        if self._padding is None:
            return positions
        return (positions - self._padding.to(device)[:, None]).clamp(min=0)

    def positions_after(self, count: int) -> int:
        """How many positions the longest row has once `count` more tokens are read."""
        return self.length + count - self._least_padding

    def layers(self, count: int, number: int, make_terms: MakeTerms, longest: int | None) -> list["LayerCache"]:
        """The `number` layers' caches, ready for `count` more tokens.

        Terms are made when the distances outgrow them, for twice as many, but never for more than `longest`.
        """
        self._layers = self._layers or [LayerCache(self) for _ in range(number)]
        limits = [limit for limit in (self.window, longest) if limit is not None]
        needed = min(self.length + count, *limits) if limits else self.length + count
        if needed > self._reach:
            self._reach = min(2 * needed, *limits) if limits else 2 * needed
            for layer, terms in zip(self._layers, make_terms(self._reach), strict=True):
                layer.terms = terms
        return self._layers

    def advance(self, count: int) -> None:
        """Once every layer has taken them: `count` tokens more are read."""
        self.length += count

    @property
    def first_seen(self) -> int:
        """The position of the first key that the next query sees."""
        return 0 if self.window is None else max(0, self.length + 1 - self.window)

    def first_key(self, device: torch.device) -> Tensor | None:
        """(B,): the first key from `first_seen` on that is no padding; None where there is no padding any more."""
        if self._padding is None or self._most_padding <= self.first_seen:
            return None
        return (self._padding.to(device) - self.first_seen).clamp(min=0)


class LayerCache:
    """One layer's keys and values, in a buffer with room to spare: growing and dropping cost little on average."""

    def __init__(self, whole: KeyValueCache) -> None:
        self._whole = whole
        self.terms: RelativeTerms | None = None  # of all distances that its queries see
        self._buffer: Tensor | None = None  # (2, B, H, capacity, Dh)
        self._origin = 0  # the position that the buffer begins with

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Queries, keys and values of new tokens, (B, H, T, Dh) each -> (B, H, T, Dh): over all that they may see."""
        keys, values = self._extend(k, v)
        offset, first_key = keys.shape[-2] - q.shape[-2], self._whole.first_key(q.device)
        return attend(q, keys, values, self.terms, offset=offset, window=self._whole.window, first_key=first_key)

    def _extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the new keys and values; all that their queries may see, (B, H, N, Dh), the new ones last."""
        length, first, count = self._whole.length, self._whole.first_seen, k.shape[-2]
        self._make_room(k, kept=length - first, count=count)
        assert self._buffer is not None
        begin, end = length - self._origin, length - self._origin + count
        self._buffer[0, :, :, begin:end] = k
        self._buffer[1, :, :, begin:end] = v
        keys, values = self._buffer[:, :, :, first - self._origin : end].unbind()
        return keys, values

    def _make_room(self, like: Tensor, kept: int, count: int) -> None:
        """For `count` more after the last `kept`, which move to the front of the buffer, or of a new one."""
        begin, end = self._whole.length - kept - self._origin, self._whole.length - self._origin
        old, roomy = self._buffer, 2 * (kept + count)
        if old is not None and end + count <= old.shape[-2]:
            return
        if old is None or roomy > old.shape[-2]:
            self._buffer = like.new_empty(2, *like.shape[:2], roomy, like.shape[-1])
        if old is not None and self._buffer is not None:
            # Within one buffer these can't overlap, as more than half of it is being dropped.
            self._buffer[:, :, :, :kept] = old[:, :, :, begin:end]
        self._origin += begin
