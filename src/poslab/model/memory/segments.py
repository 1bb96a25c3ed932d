"""Segment recurrence (Dai et al. 2019, "Transformer-XL", section 3.2): one segment's pass through the layers.

    h~ = [SG(memory) ; norm(x)]      q = W_q norm(x)      k, v = W_k h~, W_v h~

Memory holds what entered attention in each layer; keys and values are made of it with the present weights, which take
gradients from it, while what was computed before the segment takes none (SG). Deviations: the paper keeps the hidden
states before a layer, as its layers normalise after adding; here they are kept normalised, as attention takes them. A
query sees the whole memory, not only the last so many keys, so that each of a segment sees back to the same token.

B batch, T tokens of the segment, m tokens of memory that any row may see, D embedding, L layers, M memory_length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.attention import PositionIds
from poslab.config.schema import Retrieval
from poslab.errors import SettingError
from poslab.model.memory.retrieval import Lookup
from poslab.model.memory.state import Memory


@dataclass(eq=False)
class LayerMemory:
    """Memory of one layer for a segment, and the inputs that it leaves to later ones."""

    inputs: Tensor | None  # (B, m, D)
    first_key: Tensor | None  # (B,): the first of these that a row sees; None: all rows see all
    lookup: Lookup | None = None  # of the layer that retrieves
    entered: Tensor | None = None  # (B, T, D): set in the pass


class Segment:
    """Pass over one segment: the memory that its layers see, and the memory after it.

    Memory is cut to what some row may see: the first segment of a text costs what it costs without memory. Raises
    SettingError for a memory of other texts than `batch`.
    """

    def __init__(
        self, memory: Memory, batch: int, memory_length: int, num_layers: int, retrieval: Retrieval | None = None
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
        self.layers = [LayerMemory(None if shown is None else shown[layer], first_key) for layer in range(num_layers)]
        self._lookup = None if retrieval is None else Lookup(retrieval.size, memory.read, memory.keys, memory.values)
        if retrieval is not None:
            self.layers[retrieval.layer].lookup = self._lookup

    def position_ids(self, length: int, *, counted: bool) -> PositionIds:
        """Return the positions of memory and of `length` tokens after it, (m + T,), or (B, m + T) where rows differ.

        counted: from the beginning of a row's document; else from the first token remembered, which a scheme that knows
        distances only can't tell from it, and which is the same for all rows.
        """
        positions = torch.arange(self.remembered + length, device=self._memory.read.device)
        if counted and self._read is not None:
            positions = positions + (self._read - self.remembered)
        elif counted:  # what a row doesn't see has no position of its own
            positions = (positions + (self._memory.read - self.remembered)[:, None]).clamp(min=0)
        return PositionIds(positions)

    def after(self, length: int) -> Memory:
        """Return the memory once all layers have computed the segment, of `length` tokens."""
        inputs = None
        if self._length:
            entered = [_entered(layer)[:, -self._length :].detach() for layer in self.layers]
            inputs = torch.stack(entered)  # (L, B, at most M, D)
            dropped = max(0, self.remembered + inputs.shape[2] - self._length)
            if self._shown is not None and dropped < self.remembered:
                inputs = torch.cat([self._shown[:, :, dropped:].to(inputs.dtype), inputs], dim=2)
        keys, values = (None, None) if self._lookup is None else (self._lookup.keys, self._lookup.values)
        return Memory(self._memory.read + length, inputs, keys, values)


def _entered(layer: LayerMemory) -> Tensor:
    assert layer.entered is not None
    return layer.entered
