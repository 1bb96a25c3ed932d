"""Reverse a line.

Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy" (reverse string, deterministic context-free), there
with two symbols and the answer in place; here it is written after the line. The distance to the symbol to write grows
by two with every symbol written.
"""

from __future__ import annotations

from dataclasses import dataclass

from poslab.lazy import Tensor
from poslab.tasks.transcription import Transcription


@dataclass(frozen=True, kw_only=True)
class Reverse(Transcription):
    def answer(self, line: Tensor) -> Tensor:
        return line.flip(1)
