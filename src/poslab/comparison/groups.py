"""Groups of a table's rows that differ in nothing but the seed, and the seeds that were planned for them.

Rows are all that is known here, of run folders as of tables from elsewhere: scheme and settings are columns.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from poslab.comparison.scores import Score
from poslab.config.nodes import distinguishing
from poslab.errors import UserError
from poslab.runs.load import Run
from poslab.statistics.intervals import Estimate, estimate
from poslab.statistics.paired import Difference
from poslab.statistics.remarks import convergence_remarks
from poslab.statistics.table import BEST_VALIDATION_LOSS, DIVERGED, FINISHED, UNPLANNED, settings_of

Figures = dict[int, float]  # by seed


@dataclass(frozen=True)
class Group:
    """Figures of runs that differ in nothing but the seed.

    settings: as typed, whatever may distinguish the group from others of its scheme. known: all figures by metric and
    length, in the table's order. stretches: by metric, the figures of stretches of the text, a column for each seed and
    a row for each (stretch, document, tokens), 0 or 1 where those aren't known. diverged: seeds of runs that did. runs:
    the finished runs, if the table was made of run folders.
    """

    label: str
    scheme: str
    score: Score
    settings: dict[str, str]
    known: Mapping[tuple[str, int | None], Figures]
    stretches: Mapping[str, pd.DataFrame]
    lower_is_better: frozenset[str]
    diverged: Sequence[int]
    runs: Sequence[Run]

    def figures(self, metric: str, length: int | None = None) -> Figures:
        """Return a metric of each seed that has it."""
        return self.known.get((metric, length), {})

    @property
    def values(self) -> Figures:
        """Return the compared figure of each finished seed."""
        return self.figures(self.score.name, self.score.length)

    @property
    def outcomes(self) -> Figures:
        """Return the figure of each seed, the worst possible one for those that diverged."""
        return self.values | dict.fromkeys(self.diverged, self.score.metric.sign * math.inf)

    def is_named(self, name: str) -> bool:
        """Return whether a name means this group: its scheme, and some of its settings as typed, "NAME scale=32"."""
        scheme, *settings = name.split()
        given = dict(setting.partition("=")[::2] for setting in settings)
        own = self.settings
        return scheme == self.scheme and all(key in own and _same(text, own[key]) for key, text in given.items())

    @property
    def count(self) -> str:
        """Return the number of seeds in words, "3 (1 diverged)"."""
        finished = str(len(self.values))
        return f"{finished} ({len(self.diverged)} diverged)" if self.diverged else finished

    @property
    def estimate(self) -> Estimate:
        return estimate(self.values.values(), proportion=self.score.metric.is_proportion)

    @property
    def rank(self) -> tuple[float, float, float]:
        """Return the sort key, lower is better: the proportion of diverged seeds, the mean of the others, then the
        loss."""
        diverged = len(self.diverged) / (len(self.diverged) + len(self.values))
        loss = fmean(self.figures(BEST_VALIDATION_LOSS).values() or [0.0])
        return diverged, self.score.metric.sign * self.estimate.mean, loss

    @property
    def median_run(self) -> Run:
        """Return the run of the median figure, whose pictures represent its group."""
        return sorted(self.runs, key=lambda run: (self.values[run.seed], run.best_loss))[(len(self.runs) - 1) // 2]

    def mean(self, metric: str, length: int | None = None) -> float | None:
        """Return the mean of a metric, or None unless all finished seeds have it."""
        figures = self.figures(metric, length)
        return fmean(figures[seed] for seed in self.values) if self.values.keys() <= figures.keys() else None


def _same(text: str, value: str) -> bool:
    """Return whether two values as typed are the same: 32 is 32.0."""
    try:
        return float(text) == float(value)
    except ValueError:
        return text.lower() == value.lower()


def remarks_on_convergence(
    sides: Mapping[str, Sequence[Group]], d: Difference, untrained: Mapping[str, float]
) -> list[str]:
    """Return remarks on the losses of two sides, each the mean of its groups, by the name of the side."""
    losses = {name: fmean(group.estimate.mean for group in of) for name, of in sides.items()}
    falls = {name: fmean(group.mean("late_fall") or 0.0 for group in of) for name, of in sides.items()}
    return convergence_remarks(d, losses, untrained, falls)


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


def groups_of(rows: pd.DataFrame, score: Score, runs: Mapping[str, Run]) -> tuple[list[Group], SeedPlan]:
    """Return the groups that have a figure, in the table's order, and what was planned.

    rows: of a checked table, on the same data. runs: by what is in column `folder`. Raises BadTable as `settings_of`,
    and UserError without such a group.
    """
    names = settings_of(rows)
    members = {}
    for (scheme, *values), of_group in rows.groupby(["scheme", *names], sort=False):
        has = tuple((name, value) for name, value in zip(names, values, strict=True) if value != "")
        members[scheme, has] = of_group
    lower = frozenset(rows.loc[rows["better"] == "lower", "metric"])
    groups, seeds, diverged = [], {}, {}
    for (scheme, settings), of_group in members.items():
        namesakes = [dict(others) for other, others in members if other == scheme]
        label = " ".join([scheme, *distinguishing(dict(settings), namesakes)])
        at = of_group["length"].isna() if score.length is None else of_group["length"] == score.length
        planned = of_group["status"] != UNPLANNED
        compared = of_group[(of_group["metric"] == score.name) & at & of_group["stretch"].isna() & planned]
        gone = compared.loc[compared["status"] == DIVERGED, "seed"].tolist()
        seeds[label], diverged[label] = frozenset(compared["seed"]), len(gone)
        known, stretches = _figures(of_group)
        if (score.name, score.length) in known:
            folders = compared.loc[compared["status"] == FINISHED, "folder"]
            finished = [runs[folder] for folder in folders] if runs else []
            groups.append(Group(label, scheme, score, dict(settings), known, stretches, lower, gone, finished))
    if not groups:
        raise UserError("no finished run to compare, but for seeds that diverged as well")
    labels, found = list(seeds), {group.label for group in groups}
    lost = [label for label in labels if label not in found]
    looks = rows.groupby("seed")["look"].min()
    earlier = [int((looks <= look).sum()) for look in range(1, int(looks.max()))]
    return groups, SeedPlan(seeds, diverged, lost, labels[: labels.index(groups[0].label)], earlier)


def _figures(rows: pd.DataFrame) -> tuple[dict[tuple[str, int | None], Figures], dict[str, pd.DataFrame]]:
    """Return a group's figures by metric and length, and those of stretches by metric."""
    finished = rows[rows["status"] == FINISHED]
    known: dict[tuple[str, int | None], Figures] = defaultdict(dict)
    whole = finished.loc[finished["stretch"].isna(), ["metric", "length", "seed", "value"]]
    for metric, length, seed, value in whole.itertuples(index=False):
        known[metric, None if pd.isna(length) else int(length)][int(seed)] = float(value)
    of_stretches = finished[finished["stretch"].notna()].fillna({"document": 0, "stretch_tokens": 1})
    place = ["stretch", "document", "stretch_tokens"]
    stretches = {
        str(metric): of_metric.pivot(index=place, columns="seed", values="value")
        for metric, of_metric in of_stretches.groupby("metric", sort=False)
    }
    return dict(known), stretches
