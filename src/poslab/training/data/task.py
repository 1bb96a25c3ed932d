"""Fresh examples of a task at every step, the same ones in every validation."""

import textwrap
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from poslab.config.train import TrainConfig
from poslab.data.tokenizer import Symbols
from poslab.data.windows import Steps
from poslab.evaluation.files import write_scalars
from poslab.evaluation.probes import TEXTS
from poslab.evaluation.task_metrics import (
    legible_example,
    measure,
    measures,
    predictions,
    score_answers,
    wrong_answers,
)
from poslab.metric import SHARES
from poslab.model.decoder import GPT
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.code import task_sha256
from poslab.runs.error_examples import write_wrong_answers
from poslab.runs.folder import ANSWERS
from poslab.tasks import Examples, Task
from poslab.tasks.base import IGNORED, in_columns
from poslab.training.data import DataModule, loader_generator
from poslab.training.loss import language_model_loss


class TaskDataModule(DataModule):
    """Batches of one length, each a function of the seed and its step; an epoch are the steps between validations.

    The sample is one example of the validation, with given and right answers.
    """

    figures = SHARES
    number_of_sums = 5

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.task = cast(Task, config.data)
        self.name, self.sha256 = self.task.name, task_sha256(self.task)
        self.vocabulary = Symbols(self.task.symbols)
        self.training_length = self.task.lengths[-1]
        self.order = Steps(self.task.validate_every)
        self.measures = measures(self.task)
        self.example = legible_example(self.task)
        self.prompt = self.example.tokens[0].tolist()
        self.positions = None if self.example.positions is None else self.example.positions[0]

    @property
    def description(self) -> str:
        tests = ", ".join(map(str, self.task.test_lengths))
        return f"{self.name}, lengths {self.task.lengths[0]} to {self.task.lengths[-1]}, tested at {tests}"

    def loss(self, model: GPT, batch: Any) -> Tensor:
        return language_model_loss(model, *batch)

    def validation_sums(self, model: GPT, batch: Any) -> Tensor:
        answers = score_answers(model, torch.arange(len(batch.tokens)), batch).values()
        rows = torch.tensor([*answers], dtype=torch.float64)
        return torch.cat([rows.sum(0), rows[:, 1].gt(0).sum(0, keepdim=True)])  # how many examples ask something

    def validation_figures(self, sums: Tensor) -> dict[str, float]:
        _, targets, right, exact, examples = sums.tolist()
        shares = (exact / examples, right / targets)
        return super().validation_figures(sums) | dict(zip((metric.name for metric in SHARES), shares, strict=True))

    def train_dataloader(self) -> DataLoader[Any]:
        batches = _TrainingBatches(self.task, self.config.settings.seed)
        return DataLoader(batches, batch_size=None, sampler=self.shared_order(), generator=loader_generator())

    def val_dataloader(self) -> DataLoader[Any]:
        batches: Any = self.own(self.task.validation())
        return DataLoader(batches, batch_size=None)

    def texts(self) -> Tensor:
        return self.task.validation()[-1].tokens[:TEXTS]

    def sample(self, model: GPT) -> tuple[str, str]:
        tokens, targets, _ = self.example
        target_mask = targets != IGNORED
        with model.position.drawing(0):
            answers = predictions(model, self.example).where(target_mask, IGNORED)
        words = self.task.words
        rows = {"reads": words(tokens[0]), "right": words(targets[0]), "says": words(answers[0])}
        right, said = (" ".join(words(answered[target_mask])) for answered in (targets, answers))
        line = f"{said} ({'right' if said == right else right}) to {' '.join(rows['reads'])}"
        return line, textwrap.indent(in_columns(rows), "    ")

    def test(self, folder: Path) -> dict[str, Any]:
        model = load_checkpoint(folder, named=self.config.classes).model
        metrics = measure(model, self.task, self.config.settings.seed)
        curves = {f"vs_length/{name}": {int(n): share for n, share in curve.items()} for name, curve in metrics.items()}
        write_scalars(folder, curves)
        write_wrong_answers(folder / ANSWERS, wrong_answers(model, self.task))
        return {"metrics": metrics}


class _TrainingBatches(Dataset[Examples]):
    """Data set of the batches of all steps."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self.seed = seed

    def __getitem__(self, step: int) -> Examples:
        return self.task.training(self.seed, step)
