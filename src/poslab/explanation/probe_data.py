"""Probe data of a model: a sample whose attention is shown, windows for measuring attention, and questions."""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from poslab.data.tokenizer import AnyVocabulary
from poslab.errors import SettingError
from poslab.evaluation.probes import TEXTS, spread
from poslab.explanation.retrieved import passage
from poslab.model.decoder import GPT
from poslab.tasks import Task
from poslab.tasks.base import IGNORED

SAMPLE = 32  # tokens of the sample
LONGEST = 256  # tokens of a window
WINDOWS = 4
LEAST, MOST = 64, 256  # questions
TOKENS = 16384  # read for them, where that gives a number between the two


class Questions(NamedTuple):
    """Texts of one length, and the token that follows each."""

    tokens: Tensor  # (N, T) int64
    wanted: Tensor  # (N,)
    positions: Tensor | None = None  # (N, T), where a task knows better than 0, 1, 2, ...


@dataclass(frozen=True, eq=False)
class ProbeData:
    """Tokens on which a model is measured.

    name: of the text or task. longest: tokens that training read at a time. texts: more of them, for `probe`. task: its
    answers are right or wrong, rather than likely. passage: longer than a context, for
    `retrieved`."""

    name: str
    sample: Tensor  # (T,)
    windows: Tensor  # (B, T)
    questions: list[Questions]
    longest: int
    texts: Tensor  # (B, T)
    task: Task | None = None
    passage: Tensor | None = None  # (N,)

    def with_sentence(self, vocabulary: AnyVocabulary, sentence: str | None, longest: int) -> Self:
        """Return these data with another sample. Raises SettingError for one that the vocabulary doesn't have."""
        if sentence is None:
            return self
        ids = vocabulary.encode(sentence, "sentence")
        if not ids:
            raise SettingError("sentence", sentence, "has no tokens")
        sample = torch.tensor(ids[: min(SAMPLE, longest)])
        if self.passage is None:
            return replace(self, sample=sample)
        whole = self.passage[: len(self.passage) // longest * longest]
        return replace(self, sample=sample, passage=torch.cat([whole, sample]))


def text_probes(name: str, tokens: Tensor, model: GPT, ends: Tensor | None = None) -> ProbeData:
    """Return probe data of a text (N,). Its questions are tokens with at least a context before them, spread evenly; a
    text too short for them has none. ends: of its documents."""
    tokens = tokens.long()
    length = min(LONGEST, model.shape.context_length, len(tokens) - 1)
    starts = range(0, len(tokens) - length + 1, length)[:WINDOWS]
    windows = torch.stack([tokens[start : start + length] for start in starts])
    count = min(max(LEAST, min(TOKENS // length, MOST)), len(tokens) - length)
    indices = torch.linspace(length, len(tokens) - 1, count).long()
    texts = torch.stack([tokens[index - length : index] for index in indices.tolist()])
    questions = [Questions(texts, tokens[indices])]
    sample, longest = tokens[: min(SAMPLE, length)], model.shape.context_length
    texts = spread(tokens, length)
    return ProbeData(name, sample, windows, questions, longest, texts, passage=passage(tokens, model, ends))


def task_probes(task: Task, model: GPT) -> ProbeData:
    """Return probe data of a task at its longest length of training: of each example one of its answers."""
    tokens, targets, positions = task.test(task.lengths[-1])
    generator = torch.Generator().manual_seed(0)
    by_index: dict[int, list[int]] = defaultdict(list)
    for row in range(min(MOST, len(tokens))):
        answers = (targets[row] != IGNORED).nonzero().flatten()
        if len(answers):
            by_index[int(answers[torch.randint(len(answers), (), generator=generator)])].append(row)
    questions = []
    for index, rows in sorted(by_index.items()):
        at = None if positions is None else positions[rows, : index + 1]
        questions.append(Questions(tokens[rows, : index + 1], targets[rows, index], at))
    windows = tokens[: 4 * WINDOWS, :LONGEST]
    longest = tokens.shape[-1]
    example, name = tokens[0], f'the task "{task.name}"'
    remembered = passage(example, model)
    return ProbeData(name, example[:SAMPLE], windows, questions, longest, tokens[:TEXTS], task, remembered)
