"""Metrics that are known at several lengths: a table of means with intervals, and all of them for a file."""

from collections.abc import Mapping

import pandas as pd

from seedstats.comparison import Comparison
from seedstats.groups import Group
from seedstats.metric import decimals
from seedstats.page.blocks import Row, Table
from seedstats.statistics.intervals import Estimate, estimate

_NOTE = (
    "Means over seeds, each with its 95 % interval alone, which is not corrected. Only lengths that all seeds have are "
    "known. by_length.csv has them all, of every metric."
)


def length_table(comparison: Comparison, metric: str, title: str) -> Table | None:
    """Return the table of a metric by group and length, if it is known at several lengths."""
    lengths = sorted(
        {length for group in comparison.groups for name, length in group.measurements if name == metric and length}
    )
    if len(lengths) < 2:
        return None
    cells = {
        (group.label, length): _estimate(group, metric, length) for group in comparison.groups for length in lengths
    }
    widths = [of.interval.high - of.interval.low for of in cells.values() if of is not None and of.interval]
    positive = sorted(width for width in widths if width > 0)
    places = decimals(positive[len(positive) // 2]) if positive else 4
    rows: list[Row] = []
    for group in comparison.groups:
        rows.append([group.label, *(_text(cells[group.label, length], places) for length in lengths)])
    return Table(title, ["", *(f"{length:,}" for length in lengths)], rows, _NOTE, highlight=comparison.baseline)


def _estimate(group: Group, metric: str, length: int) -> Estimate | None:
    """Return the mean of all finished seeds with its interval, or None unless all have the metric."""
    values = group.of(metric, length)
    if not values or group.mean(metric, length) is None:
        return None
    return estimate(values.values(), proportion=group.metric.is_proportion and metric == group.metric.name)


def _text(over_seeds: Estimate | None, places: int) -> str:
    if over_seeds is None:
        return "n/a"
    if over_seeds.interval is None:
        return f"{over_seeds.mean:.{places}f}"
    low, high = over_seeds.interval
    return f"{over_seeds.mean:.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def by_length(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """Return a row for each group, metric and length: its number of seeds, mean, and 95 % interval.

    comparisons: by the name of their data.
    """
    rows = []
    for title, comparison in comparisons.items():
        for group in comparison.groups:
            for metric, length in group.measurements:
                over_seeds = None if length is None else _estimate(group, metric, length)
                if over_seeds is not None:
                    low, high = over_seeds.interval or (None, None)
                    key = {"name": group.name, **group.settings, "data": title, "metric": metric, "length": length}
                    count = len(group.of(metric, length))
                    rows.append({**key, "n": count, "mean": over_seeds.mean, "low": low, "high": high})
    return pd.DataFrame(rows)
