"""What runs are compared by: one of their metrics, at one length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poslab.errors import SettingError, suggestion
from poslab.runs.finished import LeftOut, Run, first_beyond
from poslab.tasks import Metric
from poslab.tasks.metric import LOSS


@dataclass(frozen=True)
class Score:
    """A metric, at a length where it has some. title: what it is in full, for headings and axes."""

    metric: Metric
    length: int | None = None
    title: str = ""

    def of(self, run: Run) -> float:
        """Raises ValueError for a run that has no such figure."""
        value = run.value(self.metric.name, self.length)
        if value is None:
            raise ValueError(f"has no {self}")
        return value

    def __str__(self) -> str:
        """ "loss", "exact at 96"."""
        return self.metric.name if self.length is None else f"{self.metric.name} at {self.length}"

    @property
    def unit(self) -> str:
        """Of an axis: "nats per token", "share of the examples"."""
        return f"share {self.metric.unit}" if self.metric.is_share else self.metric.unit

    @property
    def label(self) -> str:
        """ "best validation loss, nats per token", "exact at 96, share of the examples"."""
        return f"{self.title}, {self.unit}"

    @property
    def is_loss(self) -> bool:
        return self.metric.name == LOSS

    @property
    def best(self) -> str:
        return "highest" if self.metric.higher_is_better else "lowest"

    def text(self, value: float, sign: str = "") -> str:
        """A figure as tables give it."""
        return f"{value:{sign}.{3 if self.metric.is_share else 4}f}"


def score_of(runs: Sequence[Run], metric: str | None = None, length: int | None = None) -> Score:
    """What to compare the runs by. metric: by default the first of their measures. length: by default the first that
    they have beyond those of training, else the longest. Raises SettingError for what no run has, and names what they
    have."""
    known = list(dict.fromkeys(name for run in runs for name in run.metrics))
    name = metric or known[0]
    if name not in known:
        raise SettingError("metric", name, f"the runs don't have it; {suggestion(name, known)}")
    having = next(run for run in runs if name in run.metrics)
    lengths = sorted({n for run in runs for n in run.lengths(name)})
    if length is not None and length not in lengths:
        at = f"is known at {', '.join(map(str, lengths))}" if lengths else "is of the whole run, at no length"
        raise SettingError("length", length, f"{name} {at}")
    length = first_beyond(lengths, having.trained_to) if length is None else length
    score = Score(having.summary.measure(name), None if name == LOSS else length)
    held_out = having.summary.test_loss is not None
    loss = "test loss" if held_out else "best validation loss"
    return replace(score, title=loss if score.is_loss else str(score))


def scored(runs: Sequence[Run], score: Score) -> tuple[list[Run], list[LeftOut]]:
    """The runs that have the score, and those that have none."""
    having = [run for run in runs if run.value(score.metric.name, score.length) is not None]
    without = [LeftOut(run.folder, f"has no {score}") for run in runs if run not in having]
    return having, without
