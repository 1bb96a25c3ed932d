"""Sort different numbers.

Huang et al. 2024 (sort) and Zhou et al. 2023 (sort), with different symbols. The symbol to write is the smallest above
the last one written: no position is needed, but the order of the symbols must be learned.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.transcription import Transcription


@dataclass(frozen=True, kw_only=True)
class Sort(Transcription):
    unique = True

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("BOS", "SEP", "EOS", *map(str, range(self.vocabulary)))

    def answer(self, line: Tensor) -> Tensor:
        return line.sort(1).values
