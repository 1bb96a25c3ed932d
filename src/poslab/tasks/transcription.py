"""Transcription tasks: read a line and write it again, reversed, or sorted: BOS x SEP y EOS.

The answer is read as it is written (teacher forcing): at SEP the first symbol of y is asked, at its last one EOS.

    Zhou et al. 2023, "What Algorithms can Transformers Learn?", section 4
    Huang et al. 2024, "A Formal Framework for Understanding Length Generalization in Transformers": sizes and figures
    Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, different, numbers

BOS, SEP, EOS, FIRST = range(4)


@dataclass(frozen=True, kw_only=True)
class Transcription(Task):
    """Transcription of lines of `length` out of `vocabulary` symbols, all different in a line where `unique` is set."""

    vocabulary: int

    unique: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(2, vocabulary=self.vocabulary)
        if self.unique and self.vocabulary < self.longest:
            problem = f"lines of {self.longest} different symbols need at least as many"
            raise SettingError("vocabulary", self.vocabulary, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("BOS", "SEP", "EOS", *alphabet(self.vocabulary))

    def tokens(self, length: int) -> int:
        return 2 * length + 2

    def answer(self, line: Tensor) -> Tensor:
        """Return the lines to write (B, n) of lines (B, n), by default the same."""
        return line

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        draw = different if self.unique else numbers
        line = draw(self.vocabulary, generator, count, length) + FIRST
        return written_answer(line, self.answer(line), BOS, SEP, EOS)

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        # Length is a question of its own: many models that know what to write don't know when to end.
        return {"no_eos": examples.targets != EOS}


def written_answer(question: Tensor, answer: Tensor, bos: int, sep: int, eos: int) -> Examples:
    """Return examples BOS question SEP answer EOS of questions (B, Q) and answers (B, A); the last two are targets."""
    marks = (torch.full((len(question), 1), mark) for mark in (bos, sep, eos))
    begin, middle, end = marks
    line = torch.cat([begin, question, middle, answer, end], 1)
    tokens, targets = line[:, :-1], line[:, 1:].clone()
    targets[:, : question.shape[1] + 1] = IGNORED
    return Examples(tokens, targets)


@dataclass(frozen=True, kw_only=True)
class Copy(Transcription):
    """Unique copy: write a line of different symbols again (Zhou et al., Huang et al.).

    As no symbol comes twice, the symbol to write is the one after the last that was written: found by content, if what
    was before a token is known.
    """

    unique = True


@dataclass(frozen=True, kw_only=True)
class CopyRepeats(Transcription):
    """Copy with repeats: write a line of few symbols again (Zhou et al.; Huang et al., repeat copy, binary).

    What was written last stands many times in the line, so content doesn't tell where one is: positions must be
    counted. No scheme is known to go far beyond its training lengths without hints.
    """


@dataclass(frozen=True, kw_only=True)
class Reverse(Transcription):
    """Reverse a line (Deletang et al., deterministic context-free), there with two symbols and the answer in place.

    The distance to the symbol to write grows by two with every symbol written.
    """

    def answer(self, line: Tensor) -> Tensor:
        return line.flip(1)


@dataclass(frozen=True, kw_only=True)
class Sort(Transcription):
    """Sort different numbers (Huang et al.; Zhou et al., there with repeats).

    The symbol to write is the smallest above the last one written: it takes no position, but the order of symbols.
    """

    unique = True

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("BOS", "SEP", "EOS", *map(str, range(self.vocabulary)))

    def answer(self, line: Tensor) -> Tensor:
        return line.sort(1).values
