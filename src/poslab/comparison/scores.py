"""Score by which runs are compared: one of their metrics, at one length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poslab.errors import SettingError, suggestion
from poslab.runs.load import LeftOut, Run, first_beyond
from poslab.tasks import Metric
from poslab.tasks.metric import LOSS

LAST, BEST = "last", "best"  # the validations whose loss may be meant


@dataclass(frozen=True)
class Score:
    """Metric, at a length if it has some.

    title: its full name, for headings and axes. validation: the validation whose loss it is, last or best, or "".
    """

    metric: Metric
    length: int | None = None
    title: str = ""
    validation: str = ""

    def of(self, run: Run) -> float:
        """Return the run's figure. Raises ValueError if it has none."""
        value = run.value(self.metric.name, self.length, self.validation)
        if value is None:
            raise ValueError(f"has no {self}")
        return value

    def __str__(self) -> str:
        """Return a short name: "loss", "best validation loss", "exact at 96"."""
        if self.validation == BEST:
            return self.title
        return self.metric.name if self.length is None else f"{self.metric.name} at {self.length}"

    @property
    def unit(self) -> str:
        """Return the unit of an axis: "nats per token", "share of the examples"."""
        return f"share {self.metric.unit}" if self.metric.is_proportion else self.metric.unit

    @property
    def label(self) -> str:
        """Return the label of an axis: "last validation loss, nats per token", "exact at 96, share of the examples"."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def is_loss(self) -> bool:
        return self.metric.name == LOSS

    def choosing(self, run: Run) -> float:
        """Return the loss by which settings are chosen: of the validation compared, else of the weights compared."""
        return self.of(run) if self.validation else run.loss

    @property
    def remark(self) -> str:
        """Return the remark of every sentence on figures that were selected by themselves."""
        return "; by the best validation of each run" if self.validation == BEST else ""

    @property
    def best(self) -> str:
        return "highest" if self.metric.higher_is_better else "lowest"

    def text(self, value: float | None, sign: str = "") -> str:
        """Return a figure as tables print it."""
        return "n/a" if value is None else f"{value:{sign}.{3 if self.metric.is_proportion else 4}f}"

    def interval(self, ends: tuple[float, float] | None, sign: str = "") -> str:
        return " to ".join(self.text(end, sign) for end in ends) if ends else "n/a"


def score_of(
    runs: Sequence[Run], metric: str | None = None, length: int | None = None, validation: str | None = None
) -> Score:
    """Return the score by which to compare the runs.

    metric: by default the first of their measures. length: by default the first beyond those of training, else the
    longest. validation: which loss counts if nothing was held out, by default the last. Raises SettingError for names
    that no run has, with those that they have.
    """
    known = list(dict.fromkeys(name for run in runs for name in run.metrics))
    name = metric or known[0]
    if name not in known:
        raise SettingError("metric", name, f"the runs don't have it; {suggestion(name, known)}")
    having = next(run for run in runs if name in run.metrics)
    lengths = sorted({n for run in runs for n in run.lengths(name)})
    if length is not None and length not in lengths:
        at = f"is known at {', '.join(map(str, lengths))}" if lengths else "is of the whole run, at no length"
        raise SettingError("length", length, f"{name} {at}")
    length = first_beyond(lengths, having.summary.training_length) if length is None else length
    score = Score(having.summary.measure(name), None if name == LOSS else length)
    if not score.is_loss or having.summary.test_loss is not None:
        score = replace(score, title="test loss" if score.is_loss else str(score))
        if validation == BEST:
            raise SettingError("validation", validation, f"the runs are compared by {score.title}, which chose nothing")
        return score
    validation = validation or LAST
    return replace(score, title=f"{validation} validation loss", validation=validation)


def scored(runs: Sequence[Run], score: Score) -> tuple[list[Run], list[LeftOut]]:
    """Return (the runs that have the score, those that have none)."""
    having = [run for run in runs if run.value(score.metric.name, score.length, score.validation) is not None]
    without = [LeftOut(run.folder, f"has no {score}") for run in runs if run not in having]
    return having, without
