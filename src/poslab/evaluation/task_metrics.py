"""Metrics of a task: answers that a model gets right, each by itself (accuracy), and all of an example (exact).

The model reads the right answers as it goes (teacher forcing). For what is exact that changes nothing: as long as
every answer was right, the model would have read the same had it continued from its own.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.evaluation.pictures import LEGIBLE
from poslab.metric import SHARES, Metric, loss_metric
from poslab.model.decoder import GPT
from poslab.progress import progress
from poslab.runs.error_examples import LOOKED_AT, WrongAnswer
from poslab.tasks import Examples, Task
from poslab.tasks.base import IGNORED

_ROWS = 64  # examples per forward pass
# By metric and length; a length is text, as in JSON.
MetricsByLength = dict[str, dict[str, float]]


class Answers(NamedTuple):
    """Score of one example: the sum of its losses in nats, the number of targets, how many were right, and whether all
    were; the mean over the model's draws of positions, where it draws any."""

    loss: float
    target_count: int
    right: float
    exact: float


@torch.no_grad()
def score_answers(model: GPT, numbers: Tensor, examples: Examples) -> dict[int, Answers]:
    """Score a batch whose examples have these numbers (B,)."""
    draw_scores = []
    for draw in model.position.draws:
        with model.position.drawing(draw):
            logits = _logits(model, examples)
        losses = F.cross_entropy(logits.flatten(0, 1), examples.targets.to(logits.device).flatten(), reduction="none")
        counts, right = _counts(logits.argmax(-1).cpu(), examples.targets.cpu())
        sums = losses.view(examples.targets.shape).sum(1, dtype=torch.float64).cpu()
        draw_scores.append(torch.stack([sums, counts, right, right == counts]))
    rows = torch.stack(draw_scores).mean(0).T.tolist()  # of each example
    scores = (Answers(loss, int(target_count), *rest) for loss, target_count, *rest in rows)
    return dict(zip(numbers.tolist(), scores, strict=True))


def proportions(scores: Mapping[int, Answers]) -> dict[str, float]:
    """Return the metrics of many examples."""
    rows = [score for score in scores.values() if score.target_count]
    right, target_count = sum(row.right for row in rows), sum(row.target_count for row in rows)
    exact = sum(row.exact for row in rows)
    values = (exact / len(rows), right / target_count) if rows else ()
    return dict(zip((metric.name for metric in SHARES), values, strict=False))


def measure(model: GPT, task: Task, seed: int | None = None) -> MetricsByLength:
    """Return metrics at every test length, on the tests of a seed.

    These are `exact` and `accuracy` of the task, the same with an ending for its parts and for its shifts, and
    `..._chance` of the best answer that doesn't look at the question.
    """
    metrics: MetricsByLength = {}
    variants = {"": task, **{f"_{name}": shift for name, shift in task.shifts().items()}}
    for length in progress(sorted(task.test_lengths), "testing, lengths"):
        for ending, variant in variants.items():
            examples, by_draw = variant.test(length, seed), []
            for draw in model.position.draws:
                with model.position.drawing(draw):
                    by_draw.append(_by_part(variant, examples, predictions(model, examples)))
            for name in by_draw[0]:
                share = math.fsum(shares[name] for shares in by_draw) / len(by_draw)
                metrics.setdefault(f"{name}{ending}", {})[str(length)] = round(share, 5)
        for name, share in chance(task, length).items():
            metrics.setdefault(f"{name}_chance", {})[str(length)] = round(share, 5)
    return metrics


def wrong_answers(model: GPT, task: Task) -> dict[str, list[WrongAnswer]]:
    """Return by length the wrong answers among the first LOOKED_AT tests."""
    wrong: dict[str, list[WrongAnswer]] = {}
    for length in sorted(task.test_lengths):
        examples = task.test(length).rows(slice(LOOKED_AT))
        with model.position.drawing(0):
            answered = predictions(model, examples)
        rows = []
        for number, (tokens, targets, predicted) in enumerate(zip(*examples[:2], answered, strict=True)):
            positions = (targets != IGNORED).nonzero().flatten()
            right, said = task.words(targets[positions]), task.words(predicted[positions])
            rows.append(WrongAnswer(number, task.words(tokens), positions.tolist(), right, said))
        wrong[str(length)] = [answer for answer in rows if answer.errors]
    return wrong


def chance(task: Task, length: int) -> dict[str, float]:
    """Return the metrics of the symbol that is most often right at that length, on the tests that are shown."""
    targets = task.test(length).targets
    predicted = torch.full_like(targets, int(targets[targets != IGNORED].bincount().argmax()))
    return _proportions(predicted, targets)


def measures(task: Task) -> list[Metric]:
    """Return the metrics of the task, with their chance at the longest length of training; the loss is the last."""
    by_chance = chance(task, task.lengths[-1])
    named = [replace(metric, chance=by_chance.get(metric.name, metric.chance)) for metric in task.metrics]
    return [*named, loss_metric(None, unit="answer")]


def legible_example(task: Task) -> Examples:
    """Return one example of the validation, the longest that pictures have room for."""
    batches = task.validation()
    legible = [batch for batch in batches if batch.tokens.shape[1] <= LEGIBLE] or batches[:1]
    return legible[-1].rows(slice(1))


def predictions(model: GPT, examples: Examples) -> Tensor:
    """Return the symbols that the model finds likeliest, (B, T) int64, at targets and elsewhere."""
    with model.evaluating():
        batches = (examples.rows(slice(start, start + _ROWS)) for start in range(0, len(examples.tokens), _ROWS))
        return torch.cat([_logits(model, some).argmax(-1).cpu() for some in batches])


def _by_part(task: Task, examples: Examples, predicted: Tensor) -> dict[str, float]:
    metrics = _proportions(predicted, examples.targets)
    for part, mask in task.parts(examples).items():
        part_metrics = _proportions(predicted, examples.targets.masked_fill(~mask, IGNORED))
        metrics |= {f"{name}_{part}": share for name, share in part_metrics.items()}
    return metrics | task.derived(metrics)


def _proportions(predicted: Tensor, targets: Tensor) -> dict[str, float]:
    pairs = enumerate(torch.stack(_counts(predicted, targets), 1).tolist())
    return proportions({row: Answers(0.0, count, right, count == right) for row, (count, right) in pairs})


def _counts(predicted: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many targets each example has, and how many of them are right, both (B,)."""
    target_mask = targets != IGNORED
    return target_mask.sum(1), (target_mask & (predicted == targets)).sum(1)


def _logits(model: GPT, examples: Examples) -> Tensor:
    """Return the logits (B, T, V), on the model's device, in float32."""
    weight = model.head_weight
    hidden = model.read(examples.tokens.to(weight.device), examples.positions)
    return F.linear(hidden, weight).float()
