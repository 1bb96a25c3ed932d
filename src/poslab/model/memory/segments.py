"""Segment recurrence (Dai et al. 2019, "Transformer-XL", section 3.2): one segment's pass through the layers.

    h~ = [SG(memory) ; norm(x)]      q = W_q norm(x)      k, v = W_k h~, W_v h~

Memory holds what entered attention in each layer; keys and values are made of it with the present weights, which take
gradients from it, while what was computed before the segment takes none (SG). Deviations: the paper keeps the hidden
states before a layer, as its layers normalise after adding; here they are kept normalised, as attention takes them. A
query sees the whole memory, not only the last so many keys, so that each of a segment sees back to the same token.

B batch (texts side by side), T tokens of the segment, m tokens of memory that any row may see, D embedding, L layers,
M memory_length, H heads, N tokens to retrieve from, Dh head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention import SchemeLayer, for_queries
from poslab.attention.documents import positions_within
from poslab.errors import SettingError
from poslab.model.block import SelfAttention
from poslab.model.memory.retrieval import Lookup, RetrievedAttention


@dataclass(frozen=True, eq=False)
class Memory:
    """Memory of B texts that are read side by side.

    read: (B,) int64, how many tokens of its document each row has read so far: its memory reaches no farther back.
    inputs: (L, B, m, D), what entered attention in each layer, normalised, the newest last; m is at most M.
    keys, values: (B, H, N, Dh) of the layer that retrieves, as `retrieval.py` keeps them, the newest last.
    """

    read: Tensor
    inputs: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None

    @classmethod
    def joined(cls, memories: Sequence[Memory]) -> Memory:
        """Join memories of rows, in their order: the inverse of `rows`."""
        joined: dict[str, Any] = {}
        for name, axis in _AXES.items():
            tensors = [tensor for memory in memories if (tensor := getattr(memory, name)) is not None]
            if tensors and tensors[0].dim() > 1:  # zeros before those that remember fewer tokens, which don't see them
                most = max(tensor.shape[-2] for tensor in tensors)
                tensors = [F.pad(tensor, (0, 0, most - tensor.shape[-2], 0)) for tensor in tensors]
            joined[name] = torch.cat(tensors, axis) if tensors else None
        return cls(**joined)

    def plain(self) -> dict[str, Tensor]:
        """Return its tensors by name, for a checkpoint: `Memory(**plain)` is this one again."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    def restarted(self, read: Tensor) -> Memory:
        """Replace `read` (B,) by the counts of the data, which knows where documents begin."""
        return replace(self, read=read.to(self.read))

    def rows(self, chosen: slice) -> Memory:
        """Return the memory of some rows."""
        return Memory(**{n: x[:, chosen] if _AXES[n] else x[chosen] for n, x in self.plain().items()})

    def to(self, device: torch.device | str) -> Memory:
        """Move the memory to another device."""
        return Memory(**{name: tensor.to(device) for name, tensor in self.plain().items()})


_AXES = {"read": 0, "inputs": 1, "keys": 0, "values": 0}  # where a tensor's rows are


@dataclass(eq=False)
class LayerMemory:
    """Memory of one layer for a segment, and the inputs that it leaves to later ones."""

    inputs: Tensor | None = None  # (B, m, D)
    first_key: Tensor | None = None  # (B,): the first of these that a row sees; None: all rows see all
    keys_values: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None  # the layer's projection of these
    retrieval: RetrievedAttention | None = None  # part of the one layer that retrieves, and
    lookup: Lookup | None = None  # what it retrieves from
    entered: Tensor | None = None  # (B, T, D): set in the pass


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentLayer(SchemeLayer):
    """Scheme in one layer, for the tokens of a segment and those remembered of before it."""

    memory: LayerMemory

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor | None, first: int = 0, **settings: Any) -> Tensor:
        """Return attention of a segment's tokens, x (B, T, D), over themselves and memory, and what is retrieved."""
        assert x is not None
        memory, projected = self.memory, (q, *for_queries(q, k, v))
        memory.entered = x
        # Keys and values of what is remembered, by the present weights, come before those of the segment.
        if memory.inputs is not None and memory.keys_values is not None:
            inputs = memory.inputs.to(x.dtype)
            before = memory.keys_values(inputs)
            k, v = (torch.cat(pair, dim=2) for pair in zip(before, (k, v), strict=True))  # (B, Hkv, m + T, Dh)
            if self.overrides("token_state"):
                x = torch.cat([inputs, x], dim=1)  # (B, m + T, D)
        out = super().attend(q, k, v, x, first, first_key=memory.first_key, **settings)
        retrieval, lookup = memory.retrieval, memory.lookup
        if retrieval is None or lookup is None or retrieval.settings.layer != self.layer:
            return out
        return retrieval(out, *projected, lookup, self, first)


class Segment:
    """Pass over one segment: the memory that its layers see, and the memory after it.

    Memory is cut to what some row may see: the first segment of a text costs what it costs without memory. Raises
    SettingError for a memory of other texts than `batch`.
    """

    def __init__(
        self,
        memory: Memory,
        batch: int,
        memory_length: int,
        attentions: Sequence[SelfAttention],
        retrieval: RetrievedAttention | None,
    ) -> None:
        if len(memory.read) != batch:
            raise SettingError("memory", f"{len(memory.read)} rows", f"must be of the {batch} texts that are read")
        self._memory, self._length = memory, memory_length
        least, most = (int(read) for read in memory.read.aminmax())
        self._read = least if least == most else None  # where all have read as much
        inputs = memory.inputs
        self.remembered = 0 if inputs is None else min(inputs.shape[2], memory_length, most)  # m
        shown = None if inputs is None or not self.remembered else inputs[:, :, -self.remembered :]  # (L, B, m, D)
        self._shown = shown
        first_key = None if least >= self.remembered else self.remembered - memory.read.clamp(max=self.remembered)
        self._lookup: Lookup | None = None
        if retrieval is not None:
            self._lookup = Lookup(retrieval.settings.size, memory.read, memory.keys, memory.values)
        self._layers = []
        for layer, attention in enumerate(attentions):
            remembered = None if shown is None else shown[layer]
            self._layers.append(LayerMemory(remembered, first_key, attention.keys_values, retrieval, self._lookup))

    def layers(self, layers: Sequence[SchemeLayer]) -> list[SegmentLayer]:
        """Return the layers with the memory of each."""
        return [SegmentLayer(**vars(layer), memory=memory) for layer, memory in zip(layers, self._layers, strict=True)]

    def positions(self, length: int, *, counted: bool) -> Tensor:
        """Return the positions of memory and of `length` tokens after it, (m + T,), or (B, m + T) where rows differ.

        counted: from the beginning of a row's document; else from the first token remembered, which a scheme that knows
        distances only can't tell from it, and which is the same for all rows.
        """
        positions = torch.arange(self.remembered + length, device=self._memory.read.device)
        if counted and self._read is not None:
            return positions + (self._read - self.remembered)
        if counted:  # what a row doesn't see has no position of its own
            return (positions + (self._memory.read - self.remembered)[:, None]).clamp(min=0)
        return positions

    def documents(self, numbers: Tensor) -> Tensor:
        """Return the numbers of the documents of memory and segment, (B, m + T), of those of the segment, (B, T)."""
        return torch.cat([numbers[:, :1].expand(-1, self.remembered), numbers], dim=1)

    def after(self, length: int, documents: Tensor | None = None) -> Memory:
        """Return the memory once all layers have computed the segment, of `length` tokens; documents: (B, T)."""
        inputs = None
        if self._length:
            entered = (layer.entered for layer in self._layers if layer.entered is not None)
            inputs = torch.stack([x[:, -self._length :].detach() for x in entered])  # (L, B, at most M, D)
            dropped = max(0, self.remembered + inputs.shape[2] - self._length)
            if self._shown is not None and dropped < self.remembered:
                inputs = torch.cat([self._shown[:, :, dropped:].to(inputs.dtype), inputs], dim=2)
        keys, values = (None, None) if self._lookup is None else (self._lookup.keys, self._lookup.values)
        read = self._memory.read + length
        if documents is not None:
            read = read.where(documents[:, 0] == documents[:, -1], positions_within(documents)[:, -1] + 1)
        return Memory(read, inputs, keys, values)
