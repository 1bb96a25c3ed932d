"""Windows over one array of tokens: those to train on, and those that measure a loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from poslab.errors import require_at_least


class SlidingWindowDataset(Dataset[tuple[Tensor, Tensor]]):
    """Sliding windows over a token array: window i starts at i * stride, while start + max_length < len(token_ids).

    Items are (input, target), both int64 of (max_length,), the target one token later. Nothing but the array is
    stored; token_ids may be any 1-D tensor, array or sequence of ints, memory-mapped or not.
    Raises SettingError for a max_length or stride below 1.
    """

    def __init__(self, token_ids: Tensor | Sequence[int] | Any, max_length: int, stride: int) -> None:
        require_at_least(1, max_length=max_length, stride=stride)
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


class CoveringWindows(Dataset[tuple[int, Tensor, Tensor]]):
    """Windows that together predict all of N tokens but the first: window i begins at i * stride, the last one reaches
    the end. With stride = length every token is predicted once.

    Items are (i, input, target), the tensors int64 of (length,), the target one token later. Where the text ends before
    a window does, that is filled up with targets of IGNORED, which no loss counts.
    """

    IGNORED = -100  # torch's own

    def __init__(self, tokens: Tensor, length: int, stride: int) -> None:
        require_at_least(1, length=length, stride=stride)
        self.tokens = torch.as_tensor(tokens)
        self.length = length
        self.stride = stride

    def __len__(self) -> int:
        after_the_first = max(0, len(self.tokens) - 1 - self.length)
        return 1 + -(-after_the_first // self.stride)

    def __getitem__(self, index: int) -> tuple[int, Tensor, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = index * self.stride
        window = self.tokens[start : start + self.length + 1].to(torch.int64)
        missing = self.length + 1 - len(window)
        return index, F.pad(window[:-1], (0, missing)), F.pad(window[1:], (0, missing), value=self.IGNORED)
