"""Sliding windows over one array of tokens."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from poslab.errors import at_least


class SlidingWindowDataset(Dataset[tuple[Tensor, Tensor]]):
    """Window i starts at i * stride, for every start with start + max_length < len(token_ids).

    Items are (input, target), both int64 of (max_length,), the target one token later. Nothing but the array is
    stored; token_ids may be any 1-D tensor, array or sequence of ints, memory-mapped or not.
    Raises SettingError for a max_length or stride below 1.
    """

    def __init__(self, token_ids: Tensor | Sequence[int] | Any, max_length: int, stride: int) -> None:
        at_least(1, max_length=max_length, stride=stride)
        self.token_ids = torch.as_tensor(token_ids)
        self.max_length = max_length
        self.stride = stride

    def __len__(self) -> int:
        starts = len(self.token_ids) - self.max_length  # every start below this has its last target
        return max(0, -(-starts // self.stride))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = index % len(self) * self.stride
        window = self.token_ids[start : start + self.max_length + 1].to(torch.int64)
        return window[:-1], window[1:]
