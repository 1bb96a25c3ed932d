"""Score by which groups are compared: a metric of the table of results, at one length."""

from dataclasses import dataclass

import pandas as pd

from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, suggestion
from poslab.metric import LOSS, Metric
from poslab.statistics.remarks import fixed
from poslab.statistics.table import BEST_VALIDATION_LOSS, FINISHED, LAST_VALIDATION_LOSS, TEST_LOSS

LAST, BEST = "last", "best"  # the validations whose loss may be meant


@dataclass(frozen=True)
class Score:
    """Metric, at a length if it has some. name: in the table."""

    metric: Metric
    name: str
    length: int | None = None

    def __str__(self) -> str:
        """Return a short name: "loss", "best validation loss", "exact at 96"."""
        return LOSS if self.name in (TEST_LOSS, LAST_VALIDATION_LOSS) else self.title

    @property
    def title(self) -> str:
        """Return its full name, for headings and axes: "last validation loss", "exact at 96"."""
        return self.name if self.length is None else f"{self.name} at {self.length}"

    @property
    def validation(self) -> str:
        """Return the validation whose loss it is, last or best, or ""."""
        return {LAST_VALIDATION_LOSS: LAST, BEST_VALIDATION_LOSS: BEST}.get(self.name, "")

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

    @property
    def remark(self) -> str:
        """Return the remark of every sentence on figures that were selected by themselves, or ""."""
        return "by the best validation of each run" if self.validation == BEST else ""

    def text(self, value: float | None, sign: str = "") -> str:
        """Return a figure as tables print it."""
        return "n/a" if value is None else fixed(value, 3 if self.metric.is_proportion else 4, sign)

    def interval(self, ends: tuple[float, float] | None, sign: str = "") -> str:
        return " to ".join(self.text(end, sign) for end in ends) if ends else "n/a"


def score_of(rows: pd.DataFrame, asked: CompareConfig) -> Score:
    """Return the score by which to compare the rows of a checked table, all on the same data.

    asked: its metric and length, by default those of the first row, or the metric's first length; its validation, of
    losses that nothing was held out for; and better, where the table doesn't say. Raises SettingError for names that
    the table doesn't have, with those that it has.
    """
    whole = rows[rows["stretch"].isna()]
    names = whole["metric"].unique().tolist()
    name, length = asked.metric or names[0], asked.length
    if name == LOSS and LOSS not in names:
        name = next((loss for loss in (TEST_LOSS, LAST_VALIDATION_LOSS) if loss in names), name)
    if asked.validation == BEST:
        if name not in (LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS):
            raise SettingError("validation", asked.validation, f"the runs are compared by {name}, which chose nothing")
        name = BEST_VALIDATION_LOSS
    if name not in names:
        known = whole.loc[whole["better"] != "", "metric"].unique().tolist()
        raise SettingError("metric", name, f"there is no such metric; {suggestion(name, known or names)}")
    of_metric = whole[whole["metric"] == name]
    lengths = of_metric["length"].dropna().unique().tolist()
    if length is not None and length not in lengths:
        at = f"is known at {', '.join(map(str, sorted(lengths)))}" if lengths else "is of the whole run, at no length"
        raise SettingError("length", length, f"{name} {at}")
    length = length or (int(lengths[0]) if lengths else None)
    return Score(_metric(of_metric, name, asked.better), name, length)


def _metric(rows: pd.DataFrame, name: str, better: str | None) -> Metric:
    """Return the metric of some rows. Raises SettingError if it isn't known which figures are better."""
    first, values = rows.iloc[0], rows.loc[rows["status"] == FINISHED, "value"]
    direction = first["better"] or better
    if not direction:
        raise SettingError("better", None, f"must be lower or higher: which {name} is the better one?")
    ends = bool(values.between(0, 1).all() and values.isin([0, 1]).any())  # where a t test takes seeds for certain
    unit = first["unit"] or ("of all" if ends else "")
    of_text = name in (TEST_LOSS, LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS)
    return Metric(LOSS if of_text else name, unit, higher_is_better=direction == "higher")
