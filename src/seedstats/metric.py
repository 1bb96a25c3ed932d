"""The metric by which groups are compared: a column of numbers in the table, at one length."""

import math
from dataclasses import dataclass, replace

import pandas as pd

from seedstats.errors import BadSetting, suggestion
from seedstats.table import FINISHED, REFERENCE


@dataclass(frozen=True)
class Metric:
    """Metric of a table, at a length if it has some.

    unit: the words after a number, "nats per token", "of the examples"; what begins with "of" is a proportion, between
    0 and 1. Plots and tables call it by `title`.
    """

    name: str
    unit: str = ""
    higher_is_better: bool = False
    length: int | None = None

    @property
    def title(self) -> str:
        """Return the name with the length: "loss", "accuracy at 96"."""
        return self.name if self.length is None else f"{self.name} at {self.length}"

    @property
    def is_proportion(self) -> bool:
        return self.unit.startswith("of ")

    @property
    def sign(self) -> int:
        """Return the factor of a value that makes lower ones better."""
        return -1 if self.higher_is_better else 1

    @property
    def short_unit(self) -> str:
        """Return the unit within a sentence: "nats" for "nats per token"."""
        return self.unit.partition(" per ")[0]

    @property
    def label(self) -> str:
        """Return the label of an axis: "loss, nats per token", "accuracy at 96, share of the examples"."""
        unit = f"share {self.unit}" if self.is_proportion else self.unit
        return f"{self.title}, {unit}" if unit else self.title

    @property
    def usual_effect(self) -> float | None:
        """Return a difference that matters where nobody says: 0.02 nats; None for other units."""
        return 0.02 if self.short_unit == "nats" else None

    def at(self, length: int | None) -> "Metric":
        return replace(self, length=length)

    def text(self, value: float | None, sign: str = "", places: int | None = None) -> str:
        """Return a value as tables print it. places: its decimals, by default 4, of proportions 3."""
        if value is None:
            return "n/a"
        if places is None:
            return fixed(value, 3 if self.is_proportion else 4, sign)
        return f"{value:{sign}.{places}f}"

    def interval(self, ends: tuple[float, float] | None, sign: str = "", places: int | None = None) -> str:
        return " to ".join(self.text(end, sign, places) for end in ends) if ends else "n/a"

    def amount(self, value: float) -> str:
        """Return a value within a sentence, "0.080 nats"."""
        return f"{fixed(value, self.places(value))} {self.short_unit}".rstrip()

    def places(self, *values: float, width: float = 0.0) -> int:
        """Return a number of decimals within a sentence: 3, of proportions 2; more where values would look equal, or 0.
        width: of an interval, if there is one; two of its digits are enough."""
        told_apart = {0.0, *values}
        fewest = 2 if self.is_proportion else 3
        if width >= 1:
            fewest = min(fewest, decimals(width))
        return next((d for d in range(fewest, 12) if len({round(x, d) for x in told_apart}) == len(told_apart)), 12)


def decimals(width: float) -> int:
    """Return the decimals of numbers known as well as an interval of this width: two of its digits, at most 8."""
    return min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 4


def per_cent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def fixed(value: float, places: int, sign: str = "") -> str:
    """Return a number with so many decimals, or with two digits where it would look like 0."""
    return f"{value:{sign}.{places}f}" if value == 0 or round(value, places) else f"{value:{sign}.1e}"


def metric_of(rows: pd.DataFrame, name: str | None, length: int | None, better: str | None) -> Metric:
    """Return the metric by which to compare the rows of a checked table, all on the same data.

    By default it is that of the first row of a run, at its first length. better: lower or higher, where the table
    doesn't say. Raises BadSetting for what the table doesn't have, with what it has.
    """
    run_rows = rows[rows["status"] != REFERENCE]
    names = run_rows["metric"].unique().tolist()
    if name is not None and name not in names:
        directed = run_rows.loc[run_rows["better"] != "", "metric"].unique().tolist()
        raise BadSetting("metric", name, f"there is no such metric; {suggestion(name, directed or names)}")
    metric_rows = run_rows[run_rows["metric"] == (name or names[0])]
    lengths = metric_rows["length"].dropna().unique().tolist()
    if length is not None and length not in lengths:
        at = f"is known at {', '.join(map(str, sorted(lengths)))}" if lengths else "is of the whole run, at no length"
        raise BadSetting("length", length, f"{name or names[0]} {at}")
    first, values = metric_rows.iloc[0], metric_rows.loc[metric_rows["status"] == FINISHED, "value"]
    direction = first["better"] or better
    if not direction:
        problem = f"must be lower or higher, as in better=lower: which {first['metric']} is the better one?"
        raise BadSetting("better", "", problem)
    ends = bool(values.between(0, 1).all() and values.isin([0, 1]).any())  # where a t test takes seeds for certain
    unit = first["unit"] or ("of all" if ends else "")
    at_length = lengths[0] if length is None and lengths else length
    return Metric(str(first["metric"]), unit, direction == "higher", None if at_length is None else int(at_length))
