"""State that a model carries from segment to segment, as tensors without gradient.

B rows (texts side by side), L layers, M tokens remembered, D embedding, H heads, N tokens to retrieve from, Dh head
dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional as F


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
    def empty(cls, batch: int, device: torch.device | str | None = None) -> Memory:
        """Return the memory of texts of which nothing has been read."""
        return cls(torch.zeros(batch, dtype=torch.int64, device=device))

    @classmethod
    def joined(cls, parts: Sequence[Memory]) -> Memory:
        """Join memories of rows, in their order: the inverse of `rows`."""
        by_name = {name: [tensors[name] for tensors in map(Memory.plain, parts) if name in tensors] for name in _AXES}
        return cls(**{name: _joined(tensors, axis) for name, axis in _AXES.items() if (tensors := by_name[name])})

    @classmethod
    def from_plain(cls, plain: Mapping[str, Tensor]) -> Memory:
        """Build a memory from its tensors by name: the inverse of `plain`."""
        return cls(**plain)

    def plain(self) -> dict[str, Tensor]:
        """Return its tensors by name, for a checkpoint."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    def restarted(self, read: Tensor) -> Memory:
        """Replace `read` (B,) by the counts of the data, which knows where documents begin."""
        return replace(self, read=read.to(self.read))

    def rows(self, chosen: slice) -> Memory:
        """Return the memory of some rows."""
        return Memory.from_plain(
            {name: tensor[(slice(None),) * _AXES[name] + (chosen,)] for name, tensor in self.plain().items()}
        )

    def to(self, device: torch.device | str) -> Memory:
        """Move the memory to another device."""
        return Memory.from_plain({name: tensor.to(device) for name, tensor in self.plain().items()})


_AXES = {"read": 0, "inputs": 1, "keys": 0, "values": 0}  # where a tensor's rows are


def _joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate rows, with zeros before those that remember fewer tokens, which don't see them."""
    if tensors[0].dim() > 1:
        most = max(tensor.shape[-2] for tensor in tensors)
        tensors = [F.pad(tensor, (0, 0, most - tensor.shape[-2], 0)) for tensor in tensors]
    return torch.cat(list(tensors), axis)
