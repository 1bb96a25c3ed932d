"""Streamed reading of a text: each row of a batch has a stretch of it, and continues from segment to segment."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from poslab.data.windows import CoveringWindows, SlidingWindowDataset
from poslab.metric import IGNORED


class Segments(NamedTuple):
    """Next segment of every row. read: tokens of a segment's document that its row has read just before it; 0 where the
    document begins there, or the row's stretch."""

    tokens: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    read: Tensor  # (B,) int64


class StreamedWindows(Dataset[tuple[Tensor, ...]]):
    """Windows side by side as segments of `rows` stretches, in the order of `ContiguousRows`.

    ends: where documents end in the tokens, ascending; None or empty: all is one document. Items are Segments, and
    where the windows keep documents apart have their numbers as well.
    """

    def __init__(self, windows: SlidingWindowDataset, rows: int, ends: Tensor | None = None) -> None:
        self.windows = windows
        self.stretch = len(windows) // rows  # in windows
        self.ends = ends

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        length = self.windows.max_length
        start, first = index * length, (index - index % self.stretch) * length
        tokens, targets, *documents = self.windows[index]
        read = torch.tensor(start - max(first, document_start(self.ends, start)))
        return (tokens, targets, read, *documents) if documents else Segments(tokens, targets, read)


class Scan(NamedTuple):
    """K segments of each of R rows, to be read one after the other. numbers: of the windows that they are; read: as in
    `Segments`. Targets are IGNORED in segments that only fill memory, and where a row has no segment at all."""

    numbers: Tensor  # (K, R)
    tokens: Tensor  # (K, R, T)
    targets: Tensor  # (K, R, T)
    read: Tensor  # (K, R)


class Scans(Dataset[tuple[Tensor, ...]]):
    """Validation data for a model with memory: the first `count` of windows side by side, each judged once.

    So that rows can be read side by side, the text is cut into pieces; each begins some windows, `before`, earlier than
    it is judged, that memory is as full there as it is farther on. A piece has about 8 times as many. Where they are
    cut depends on `count` and `before` alone; `rows` of them are a scan.
    """

    def __init__(
        self, windows: CoveringWindows, rows: int, before: int, ends: Tensor | None = None, count: int | None = None
    ) -> None:
        self.windows = windows
        self.rows = rows
        self.before = before
        self.ends = ends
        self.count = len(windows) if count is None else min(count, len(windows))
        self.piece = -(-self.count // -(-self.count // (8 * before)))

    def __len__(self) -> int:
        return -(-self.count // (self.piece * self.rows))

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        first = index * self.piece * self.rows
        firsts = range(first, min(self.count, first + self.piece * self.rows), self.piece)
        steps = range(-min(self.before, firsts[-1]), min(self.piece, self.count - first))
        segments = [self._segment(first, first + step) for step in steps for first in firsts]
        columns = zip(*segments, strict=True)
        scan = tuple(torch.stack(column).unflatten(0, (len(steps), len(firsts))) for column in columns)
        return Scan(*scan) if self.windows.ends is None else scan

    def _segment(self, first: int, number: int) -> tuple[Tensor, ...]:
        """Return window `number`, of a row that is judged from window `first` on."""
        length, there = self.windows.length, 0 <= number < min(first + self.piece, self.count)
        _, tokens, targets, *documents = self.windows[number if there else 0]
        if number < first or not there:
            targets = torch.full_like(targets, IGNORED)
        start, begin = number * length, max(0, first - self.before) * length
        read = start - max(begin, document_start(self.ends, start)) if there else 0
        return torch.tensor(number), tokens, targets, torch.tensor(read), *documents


def document_start(ends: Tensor | None, position: int) -> int:
    """Return the position at which the document of the token at `position` begins."""
    before = 0 if ends is None else int(torch.searchsorted(ends, position, right=True))
    return int(ends[before - 1]) if ends is not None and before else 0


def segments_before(length: int, reach: int) -> int:
    """Return how many segments fill a memory that reaches so many tokens back, at least one."""
    return max(1, -(-reach // length))
