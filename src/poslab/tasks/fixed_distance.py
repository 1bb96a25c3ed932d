"""Tasks about two tokens at a distance that is given: name what stood `steps` before, name what stands so many places
from another symbol, and fill the gap in a line repeated."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from poslab.errors import SettingError, require_at_least
from poslab.tasks.base import IGNORED, Examples, Task, alphabet, different, numbers, one_answer


@dataclass(frozen=True, kw_only=True)
class Back(Task):
    """Name the symbol that stood `steps` positions before, at every position.

    A dense form of stride copy (Huang et al. 2024, appendix G.7), which needs attention at a fixed distance. One layer
    that knows distances is enough; without them a model must count. Length is the number of tokens.

    With `match` it is the N-back test of psychologists, which Gong and Zhang 2024 give to transformers ("Self-Attention
    Limits Working Memory Capacity of Transformer-Based Models"): is this symbol the one of `steps` before ("=") or not
    ("!=")? Either is as likely, and all other symbols are alike.
    """

    steps: int = 3
    vocabulary: int = 16
    match: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(int(self.match), steps=self.steps)
        require_at_least(2, vocabulary=self.vocabulary)
        if (shortest := min(self.min_length, *self.test_lengths)) <= self.steps:
            raise SettingError("steps", self.steps, f"nothing is asked within length {shortest}")

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*alphabet(self.vocabulary), *(("=", "!=") if self.match else ()))

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        tokens = numbers(self.vocabulary, generator, count, length)
        answers = tokens.roll(self.steps, 1)
        if self.match:
            differs = numbers(2, generator, count, length)
            further = differs * (1 + numbers(self.vocabulary - 1, generator, count, length))  # than that symbol's id
            for i in range(self.steps, length):
                tokens[:, i] = (tokens[:, i - self.steps] + further[:, i]) % self.vocabulary
            answers = self.vocabulary + differs
        return Examples(tokens, answers.index_fill(1, torch.arange(self.steps), IGNORED))


@dataclass(frozen=True, kw_only=True)
class Indirect(Task):
    """Indirect indexing: name the symbol that stands a named number of places after, or before, a named one.

    Gopalakrishnan et al. 2025, "Decoupling the What and Where With Polar Coordinate Positional Embeddings", table 1 and
    appendix B.1: a line of 20 to 40 different letters, one of them again, a shift of up to 15, and the letter there.
    The first step is by content alone, the second by distance alone. Here a shift is one symbol, not digits; all places
    within the line that it may name are as likely; and several questions may follow, each about another symbol. Length
    is that of the line.
    """

    vocabulary: int = 52
    shift: int = 15
    questions: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, shift=self.shift, questions=self.questions)
        if (longest := self.longest) > self.vocabulary:
            raise SettingError("vocabulary", self.vocabulary, f"lines of {longest} need as many different symbols")
        if (shortest := min(self.min_length, *self.test_lengths)) < self.questions:
            problem = f"need as many different symbols, and a line has {shortest}"
            raise SettingError("questions", self.questions, problem)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*alphabet(self.vocabulary), *(f"{shift:+}" for shift in range(-self.shift, self.shift + 1)))

    def tokens(self, length: int) -> int:
        return length + 2 * self.questions

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        line = different(self.vocabulary, generator, count, length)
        places = different(length, generator, count, self.questions)  # (B, Q)
        lowest, highest = (places - self.shift).clamp(min=0), (places + self.shift).clamp(max=length - 1)
        share = torch.rand(places.shape, generator=generator, dtype=torch.float64)
        wanted = lowest + (share * (highest - lowest + 1)).long()
        shifts = self.vocabulary + self.shift + wanted - places
        questions = torch.stack([line.gather(1, places), shifts], 2).flatten(1)  # (B, 2 Q)
        tokens = torch.cat([line, questions], 1)
        targets = torch.full_like(tokens, IGNORED)
        targets[:, length + 1 :: 2] = line.gather(1, wanted)
        return Examples(tokens, targets)


@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(Task):
    """Missing duplicate: a line twice, but one symbol is missing: which?

    Deletang et al. 2023 (missing duplicate string, context-sensitive): w w with one symbol, anywhere, replaced by "?".
    Its double stands at a fixed distance, before or after it. w w SEP, then one answer. Length is that of w.
    """

    vocabulary: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(2, vocabulary=self.vocabulary)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*alphabet(self.vocabulary), "?", "SEP")

    def tokens(self, length: int) -> int:
        return 2 * length + 1

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        missing, sep = self.vocabulary, self.vocabulary + 1
        twice = numbers(self.vocabulary, generator, count, length).repeat(1, 2)
        position = numbers(2 * length, generator, count, 1)
        question = torch.cat([twice.scatter(1, position, missing), torch.full((count, 1), sep)], 1)
        return one_answer(question, twice.gather(1, position).squeeze(1))
