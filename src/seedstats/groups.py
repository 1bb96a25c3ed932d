"""Groups of a table's rows that differ in nothing but the seed, and the seeds that were planned for them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import pandas as pd

from seedstats.errors import BadTable
from seedstats.metric import Metric
from seedstats.statistics.intervals import Estimate, estimate
from seedstats.table import DIVERGED, FINISHED, REFERENCE, UNPLANNED, settings_of

BySeed = dict[int, float]


@dataclass(frozen=True)
class Group:
    """Values of runs that differ in nothing but the seed.

    label: the name, and the settings that distinguish it from others of that name. settings: as typed. measurements:
    values by metric and length, in the table's order. signs: by metric, the factor that makes lower values better,
    where that is known. diverged: seeds of runs that did. folders: of the finished runs, by seed, where the table has
    them.
    """

    label: str
    name: str
    metric: Metric
    settings: dict[str, str]
    measurements: Mapping[tuple[str, int | None], BySeed]
    signs: Mapping[str, int]
    diverged: Sequence[int]
    folders: Mapping[int, str]

    def of(self, metric: str, length: int | None = None) -> BySeed:
        """Return a metric of each seed that has it."""
        return self.measurements.get((metric, length), {})

    @property
    def values(self) -> BySeed:
        """Return the compared value of each finished seed."""
        return self.of(self.metric.name, self.metric.length)

    @property
    def outcomes(self) -> BySeed:
        """Return the value of each seed, the worst possible one for those that diverged."""
        return self.values | dict.fromkeys(self.diverged, self.metric.sign * math.inf)

    def is_named(self, text: str) -> bool:
        """Return whether a text means this group: its name, and some of its settings as typed, "NAME scale=32"."""
        name, settings = text[: len(self.name)], text[len(self.name) :]  # names may have spaces
        wanted = dict(setting.partition("=")[::2] for setting in settings.split())
        own = self.settings
        fits = all(key in own and _same(value, own[key]) for key, value in wanted.items())
        return (name == self.name and settings[:1] in ("", " ") and fits) or text == self.label

    @property
    def count(self) -> str:
        """Return the number of seeds in words, "3 (1 diverged)"."""
        finished = str(len(self.values))
        return f"{finished} ({len(self.diverged)} diverged)" if self.diverged else finished

    @property
    def estimate(self) -> Estimate:
        return estimate(self.values.values(), proportion=self.metric.is_proportion)

    @property
    def rank(self) -> tuple[float, float]:
        """Return the sort key, lower is better: the proportion of diverged seeds, then the mean of the others."""
        diverged = len(self.diverged) / (len(self.diverged) + len(self.values))
        return diverged, self.metric.sign * self.estimate.mean

    @property
    def median(self) -> float:
        return median(self.values.values())

    def mean(self, metric: str, length: int | None = None) -> float | None:
        """Return the mean of a metric, or None unless all finished seeds have it."""
        values = self.of(metric, length)
        return fmean(values[seed] for seed in self.values) if self.values.keys() <= values.keys() else None


def _same(text: str, value: str) -> bool:
    """Return whether two values as typed are the same: 32 is 32.0."""
    try:
        return float(text) == float(value)
    except ValueError:
        return text.lower() == value.lower()


@dataclass(frozen=True)
class SeedPlan:
    """Planned seeds of a comparison.

    seeds: of each group, by label. diverged: how many did, of each group. lost: the groups without a finished run.
    before: those of them that the table has before all others, so that one would have been the baseline. earlier: how
    many seeds a group had at comparisons after which further ones were planned.
    """

    seeds: Mapping[str, frozenset[int]]
    diverged: Mapping[str, int]
    lost: Sequence[str]
    before: Sequence[str]
    earlier: Sequence[int]

    def of_pair(self, first: str, second: str) -> frozenset[int]:
        """Return the seeds planned for both groups."""
        return self.seeds[first] & self.seeds[second]

    @property
    def groups(self) -> int:
        """Return the number of groups with several planned seeds."""
        return sum(len(seeds) > 1 for seeds in self.seeds.values())


class _Row(NamedTuple):
    """What counts of a row of the table."""

    seed: int
    metric: str
    length: int | None
    value: float
    status: str
    folder: str


def groups_of(rows: pd.DataFrame, metric: Metric) -> tuple[list[Group], SeedPlan]:
    """Return the groups that have a value, in the table's order, and what was planned.

    rows: of a checked table, on the same data. Raises BadTable as `settings_of`, and without such a group.
    """
    rows = rows[rows["status"] != REFERENCE]
    names = settings_of(rows)

    # Rows of one name and the same settings are a group; an empty setting is none.
    members: dict[tuple[str, tuple[tuple[str, str], ...]], list[_Row]] = defaultdict(list)
    lengths = [None if pd.isna(length) else int(length) for length in rows["length"]]
    columns = rows[["name", "seed", "metric", "value", "status", "folder", *names]].itertuples(index=False, name=None)
    for length, (name, seed, metric_name, value, status, folder, *settings) in zip(lengths, columns, strict=True):
        own = tuple((key, text) for key, text in zip(names, settings, strict=True) if text != "")
        members[name, own].append(_Row(int(seed), metric_name, length, value, status, folder))
    namesakes: dict[str, list[dict[str, str]]] = defaultdict(list)
    for name, own in members:
        namesakes[name].append(dict(own))

    directed = rows[rows["better"] != ""]
    signs = dict(zip(directed["metric"], np.where(directed["better"] == "lower", 1, -1).tolist(), strict=True))
    signs |= {metric.name: metric.sign}  # the table may leave the direction to be typed
    groups, seeds, diverged = [], {}, {}
    for (name, own), group_rows in members.items():
        label = " ".join([name, *distinguishing(dict(own), namesakes[name])])
        at = [row for row in group_rows if (row.metric, row.length) == (metric.name, metric.length)]
        compared = [row for row in at if row.status != UNPLANNED]
        diverged_seeds = [row.seed for row in compared if row.status == DIVERGED]
        seeds[label], diverged[label] = frozenset(row.seed for row in compared), len(diverged_seeds)
        measurements: dict[tuple[str, int | None], BySeed] = defaultdict(dict)
        for row in group_rows:
            if row.status == FINISHED:
                measurements[row.metric, row.length][row.seed] = float(row.value)
        if (metric.name, metric.length) in measurements:
            folders = {row.seed: row.folder for row in compared if row.status == FINISHED and row.folder}
            groups.append(Group(label, name, metric, dict(own), dict(measurements), signs, diverged_seeds, folders))
    if not groups:
        raise BadTable("no finished run to compare, but for seeds that diverged as well")
    labels, with_values = list(seeds), {group.label for group in groups}
    lost = [label for label in labels if label not in with_values]
    looks = rows.groupby("seed")["look"].min()
    earlier = [int((looks <= look).sum()) for look in range(1, int(looks.max()))]
    return groups, SeedPlan(seeds, diverged, lost, labels[: labels.index(groups[0].label)], earlier)


def distinguishing(settings: Mapping[str, str], namesakes: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the settings, as one would type them, in which any of the namesakes differs.

    Of "outer.scale" only namesakes with the same "outer" count, as it is a setting within that one.
    """

    def differs(key: str, other: Mapping[str, str]) -> bool:
        outer = key.rpartition(".")[0]
        return other.get(key) != settings[key] and other.get(outer) == settings.get(outer)

    others = list(namesakes)
    return [f"{key}={text}" for key, text in settings.items() if any(differs(key, other) for other in others)]


def by_name(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each name, in alphabetical order."""
    names = sorted({group.name for group in groups})
    return {name: [group for group in groups if group.name == name] for name in names}


def varied_settings(groups: Sequence[Group]) -> list[str]:
    """Return the settings of which the groups have several values."""
    names = dict.fromkeys(name for group in groups for name in group.settings)
    return [name for name in names if len({group.settings.get(name) for group in groups}) > 1]


def by_value(values: Iterable[str]) -> list[tuple[float, str]]:
    """Return the sort key of settings as typed: numbers by their size, then others."""
    return [(float(value), "") if is_number(value) else (math.inf, value) for value in values]


def is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def references_of(rows: pd.DataFrame, metric: Metric) -> tuple[dict[str, float], dict[str, str]]:
    """Return the values of the table's references at the metric, and what it means to be worse, both by name."""
    at = rows["length"].isna() if metric.length is None else rows["length"] == metric.length
    references = rows[(rows["status"] == REFERENCE) & (rows["metric"] == metric.name) & at]
    by_name = references.set_index("name")
    return by_name["value"].astype(float).to_dict(), by_name["caveat"].to_dict()
