"""Scoring of a run's model on its data: validation, a sample, and the test at the end."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from poslab.config.train import TrainConfig
from poslab.data.module import DataModule, TextDataModule
from poslab.data.stream import Scan
from poslab.data.task import TaskDataModule
from poslab.errors import SettingError
from poslab.evaluation.files import evaluate_run, held_out, write_scalars
from poslab.evaluation.losses import mean_loss, window_losses
from poslab.evaluation.probes import TEXTS, spread
from poslab.evaluation.stream_losses import consecutive_token_losses, scanned_losses
from poslab.evaluation.task_metrics import (
    MetricsByLength,
    legible_example,
    measure,
    measures,
    predictions,
    proportions,
    score_answers,
    wrong_answers,
)
from poslab.metric import LOSS, PERPLEXITY, SHARES, Metric, loss_metric, perplexity
from poslab.model.decoder import GPT
from poslab.model.memory import MemoryGPT
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.error_examples import write_wrong_answers
from poslab.runs.folder import ANSWERS
from poslab.tasks.base import IGNORED, in_columns

Data = TypeVar("Data", bound=DataModule)
# By the number of a window or an example, so that one that came twice counts once: the sum of its losses in nats, how
# many they are, and what else its figures are made of.
Rows = Mapping[int, Any]


class Scoring(ABC, Generic[Data]):
    """Measures beside the loss: `figures` at every validation, `measures` of the whole run, first the one by which such
    runs are compared. prompt: tokens (T,) that samples continue; positions: theirs, if not 0, 1, ..."""

    figures: tuple[Metric, ...]
    measures: list[Metric]
    prompt: list[int]
    positions: Tensor | None = None
    in_segments = False  # whether an example of a task is read as a text of several segments

    def __init__(self, config: TrainConfig, data: Data) -> None:
        self.config = config
        self.data = data
        self.monitor = config.settings.monitor

    def monitored(self, figures: Mapping[str, float]) -> float:
        """Return the figure that `monitor` names, lower is better; 0 for the loss, which breaks ties."""
        return sum((metric.sign * figures[metric.name] for metric in self.figures if metric.name == self.monitor), 0.0)

    @abstractmethod
    def rows(self, model: GPT, batch: Any) -> Rows:
        """Return the rows of a validation batch, by number."""

    def validation(self, rows: Rows) -> dict[str, float]:
        """Return the loss and `figures` of a validation, by name."""
        return {LOSS: mean_loss(rows)}

    @abstractmethod
    def texts(self) -> Tensor:
        """Return texts (B, T) of the validation, on which the model is probed."""

    @abstractmethod
    def sample(self, model: GPT) -> tuple[str, str]:
        """Return a sample of the model's output, for the screen, and for TensorBoard, which reads it as Markdown."""

    @abstractmethod
    def test(self, folder: Path) -> MetricsByLength:
        """Test the best weights of the run in the folder, and write there what TensorBoard shows of that."""

    def held_out_loss(self, folder: Path) -> float | None:
        """Return the loss of the best weights on a part of the data that decided nothing; None where there is none."""
        return None


class TextScoring(Scoring[TextDataModule]):
    """Scoring on windows of a text. Raises SettingError for a prompt that the vocabulary lacks."""

    figures = (PERPLEXITY,)

    def __init__(self, config: TrainConfig, data: TextDataModule) -> None:
        super().__init__(config, data)
        self.measures = [loss_metric(data.vocabulary.size)]
        prompt = config.sample.prompt
        self.prompt = data.vocabulary.encode(prompt, "sample.prompt") if prompt else self._opening()

    def rows(self, model: GPT, batch: Any) -> Rows:
        if isinstance(batch, Scan) and isinstance(model, MemoryGPT):
            return scanned_losses(model, batch)
        return window_losses(model, *batch)

    def validation(self, rows: Rows) -> dict[str, float]:
        figures = super().validation(rows)
        return figures | {PERPLEXITY.name: perplexity(figures[LOSS])}

    def texts(self) -> Tensor:
        return spread(self.data.corpus.validation, self.data.context_length)

    def sample(self, model: GPT) -> tuple[str, str]:
        wanted, seed = self.config.sample, self.config.settings.seed
        sampling: dict[str, Any] = {"temperature": wanted.temperature, "top_k": wanted.top_k, "seed": seed}
        (tokens,) = model.generate([self.prompt], wanted.new_tokens, **sampling)
        text = self.data.vocabulary.decode(tokens)
        return text, text

    def test(self, folder: Path) -> MetricsByLength:
        wanted = self.config.evaluation
        if not wanted.lengths:
            return {}
        text = held_out(self.data.corpus)
        print(f"\nevaluating at lengths {', '.join(map(str, wanted.lengths))} ({text.name}) ...", flush=True)
        return evaluate_run(folder, wanted.lengths, wanted.stride, wanted.last, text=text, allow_code=True).metrics

    def held_out_loss(self, folder: Path) -> float | None:
        if not self.data.test_tokens:
            return None
        model, length = load_checkpoint(folder, allow_code=True).model, self.data.context_length
        tokens, ends = self.data.corpus.test, self.data.corpus.ends.get("test")
        return float(consecutive_token_losses(model, tokens, length, ends).mean(dtype=torch.float64))

    def _opening(self) -> list[int]:
        """Return the first words of the validation text."""
        opening = self.data.corpus.validation[:12].tolist()
        # The split may have cut a word in two.
        starts = (i for i in range(1, len(opening)) if self.data.vocabulary.decode(opening[i : i + 1]).startswith(" "))
        return opening[next(starts, 0) :]


class TaskScoring(Scoring[TaskDataModule]):
    """Scoring of answers to a task. The sample is one example of the validation, with given and right answers."""

    figures = SHARES

    def __init__(self, config: TrainConfig, data: TaskDataModule) -> None:
        super().__init__(config, data)
        self.in_segments = data.task.in_segments or config.model.reach > 0
        self.measures = measures(data.task)
        self.example = legible_example(data.task)
        if self.in_segments and self.example.positions is not None:
            problem = "is read in segments, whose positions are counted on; this task says where its tokens stand"
            raise SettingError("data", data.task.name, problem)
        self.prompt = self.example.tokens[0].tolist()
        self.positions = None if self.example.positions is None else self.example.positions[0]

    def rows(self, model: GPT, batch: Any) -> Rows:
        numbers, examples = batch
        return score_answers(model, numbers, examples)

    def validation(self, rows: Rows) -> dict[str, float]:
        return super().validation(rows) | proportions(rows)

    def texts(self) -> Tensor:
        return self.data.task.validation()[-1].tokens[:TEXTS]

    def sample(self, model: GPT) -> tuple[str, str]:
        tokens, targets, _ = self.example
        target_mask = targets != IGNORED
        with model.drawing(0):
            answers = predictions(model, self.example).where(target_mask, IGNORED)
        words = self.data.task.words
        rows = {"reads": words(tokens[0]), "right": words(targets[0]), "says": words(answers[0])}
        right, given = (" ".join(words(answered[target_mask])) for answered in (targets, answers))
        line = f"{given} ({'right' if given == right else right}) to {' '.join(rows['reads'])}"
        return line, textwrap.indent(in_columns(rows), "    ")

    def test(self, folder: Path) -> MetricsByLength:
        model = load_checkpoint(folder, allow_code=True).model
        metrics = measure(model, self.data.task, self.config.settings.seed)
        curves = {f"{name}_by_length": {int(n): share for n, share in curve.items()} for name, curve in metrics.items()}
        write_scalars(folder, curves)
        write_wrong_answers(folder / ANSWERS, wrong_answers(model, self.data.task))
        return metrics
