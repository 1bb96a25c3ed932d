"""Unique copy: write a line of different symbols again.

Zhou et al. 2023, "What Algorithms can Transformers Learn?", section 4; sizes and figures as in Huang et al. 2024, "A
Formal Framework for Understanding Length Generalization in Transformers" (unique copy). As no symbol comes twice, the
symbol to write is the one after the last that was written: found by content, if what was before a token is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.transcription import Transcription


@dataclass(frozen=True, kw_only=True)
class Copy(Transcription):
    unique = True

    def answer(self, line: Tensor) -> Tensor:
        return line
