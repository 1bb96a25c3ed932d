"""A text read as a stream: each row of a batch has a stretch of it, and goes on from step to step."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from poslab.data.windows import SlidingWindowDataset


class Segments(NamedTuple):
    """The next segment of every row. read: how many tokens of the document that a segment begins in its row has read
    just before; 0 where the document begins there, or the row's stretch."""

    tokens: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    read: Tensor  # (B,) int64


class StreamedWindows(Dataset[Segments]):
    """Windows side by side as segments of `rows` stretches, in the order of `InRows`.

    ends: where documents end in the tokens, ascending; None or empty: all is one document.
    """

    def __init__(self, windows: SlidingWindowDataset, rows: int, ends: Tensor | None = None) -> None:
        self.windows = windows
        self.stretch = len(windows) // rows  # in windows
        self.ends = ends

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Segments:
        length = self.windows.max_length
        start, first = index * length, (index - index % self.stretch) * length
        return Segments(*self.windows[index], torch.tensor(start - max(first, document_start(self.ends, start))))


def document_start(ends: Tensor | None, place: int) -> int:
    """Where the document begins that the token at `place` is of."""
    before = 0 if ends is None else int(torch.searchsorted(ends, place, right=True))
    return int(ends[before - 1]) if ends is not None and before else 0
