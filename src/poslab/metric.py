"""Metrics by which runs are judged: their unit, which way is better, what chance gives."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """Figure by which runs are judged. unit: the words after the number, "nats per token", "of the examples"; what
    begins with "of" is a share, between 0 and 1. chance: the best that can be had without looking at the question."""

    name: str
    unit: str
    higher_is_better: bool = True
    chance: float | None = None

    @property
    def is_proportion(self) -> bool:
        return self.unit.startswith("of ")

    @property
    def sign(self) -> int:
        """Return the factor of a figure that makes lower ones better."""
        return -1 if self.higher_is_better else 1


EXACT = Metric("exact", "of the examples")
ACCURACY = Metric("accuracy", "of the answers")
SHARES = (EXACT, ACCURACY)  # of every task, in validations and tests
PERPLEXITY = Metric("perplexity", "", higher_is_better=False)  # of a text: exp(loss)
LOSS = "loss"
IGNORED = -100  # a target that counts in no figure; torch's own
# Losses of a text: of its test part by the best checkpoint, and of a run's last and best validation.
TEST_LOSS, LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS = "test loss", "last validation loss", "best validation loss"
LAST_TOKENS_LOSS, MEMORY_LOSS = "last_loss", "memory_loss"  # of a text: of last tokens, and by how many are remembered
LOSSES_BY_LENGTH = "window loss", "sliding loss", LAST_TOKENS_LOSS  # of an evaluation of a text
SOLVED = 0.99  # of EXACT, from which on the lengths of training count as solved


def loss_metric(vocabulary_size: int | None, unit: str = "token") -> Metric:
    """Return the metric of the cross-entropy; its chance is that of a model for which all symbols are alike."""
    chance = vocabulary_size and math.log(vocabulary_size)
    return Metric(LOSS, f"nats per {unit}", higher_is_better=False, chance=chance)


def perplexity(loss: float) -> float:
    """Return exp(loss), infinite if a float can't hold it."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def metric_named(name: str, metrics: Iterable[Metric]) -> Metric:
    """Return the metric of that name. Names of parts and variants contain it: last_loss, exact_no_eos. Raises KeyError
    for one that is none of them."""
    words = name.split("_")
    for metric in metrics:
        if metric.name == name:
            return metric
        if metric.name in words:
            return Metric(name, metric.unit, metric.higher_is_better)
    raise KeyError(name)


def tag_of(metric: str) -> str:
    """Return what TensorBoard calls a logged metric. It sorts its charts by name, and those of validation are to stand
    before those of training, with the loss before its lowest value."""
    group, _, name = metric.partition("/")
    if group != "val":
        return metric
    return "eval/loss_best" if name == "best_loss" else f"eval/{name}"
