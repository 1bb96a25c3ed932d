"""Copy with repeats: write a line of few symbols again.

Huang et al. 2024 (repeat copy, binary) and Zhou et al. 2023 (copy with repeats). What was written last stands
many times in the line, so content doesn't tell where one is: positions must be counted. No scheme is known to go far
beyond its training lengths without hints.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.transcription import Transcription


@dataclass(frozen=True, kw_only=True)
class CopyRepeats(Transcription):
    def answer(self, line: Tensor) -> Tensor:
        return line
