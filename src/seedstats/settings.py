"""Settings: what each does, and each name at its best one.

A name that was tried with several values of several settings is a grid of groups, and which of thirty groups is best is
seldom the question.

The effect of a setting is the mean with one of its values less that with another, over those values of all other
settings with which both were tried, paired by seed. Each seed gives one such difference, so the test is the paired one
of two groups (`statistics.paired`), in one family with all comparisons of the page. Where an average hides two
directions, the sentence says so. Settings that always change together are one factor, as nothing can separate them.

Trying more settings finds better ones by chance. Names are therefore compared at the setting that another metric than
the compared one has chosen, such as the loss of a validation, from as many settings each (`chosen`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

from seedstats.errors import BadSetting, suggestion
from seedstats.finding import finding, p_text
from seedstats.groups import BySeed, Group, SeedPlan
from seedstats.metric import Metric
from seedstats.page.blocks import Table
from seedstats.statistics.families import without_claims
from seedstats.statistics.paired import Difference, paired
from seedstats.table import SOURCE

if TYPE_CHECKING:
    from seedstats.comparison import Comparison

Level = tuple[str, ...]
Cell = tuple[Group, Group]  # equal in all but the factor


@dataclass(frozen=True)
class Factor:
    """Settings that change together, and their values as typed: the defaults first if known, else the smallest."""

    names: tuple[str, ...]
    levels: tuple[Level, ...]

    def level(self, group: Group) -> Level:
        return tuple(group.settings.get(name, "") for name in self.names)

    def told(self, level: Level) -> str:
        """Return the level as typed, "max_distance=4"."""
        typed = [f"{name}={value}" for name, value in zip(self.names, level, strict=True) if value]
        return " ".join(typed) or f"no {self}"

    @property
    def is_switch(self) -> bool:
        """Return whether it is a single setting that is on or off."""
        return {value for level in self.levels for value in level} == {"true", "false"} and len(self.names) == 1

    def __str__(self) -> str:
        return " and ".join(self.names)


@dataclass(frozen=True)
class Effect:
    """Effect of one value of a factor, `level`, instead of another, `baseline`, in words.

    cells: the pairs of groups averaged over. others: the factors whose values are equal within each pair.
    """

    name: str
    level: str
    baseline: str
    cells: Sequence[Cell]
    others: Sequence[Factor]
    metric: Metric
    difference: Difference

    def sentence(self, effect: float | None = None) -> str:
        """Return the finding. effect: the difference that matters."""
        where = self._otherwise or self._where
        first, second = (f"{self.name} with {level}" for level in (self.level, self.baseline))
        return str(finding(first, second, self.difference, self.metric, effect, where))

    @property
    def _where(self) -> str:
        if len(self.cells) > 1:
            return f"This is the mean over {len(self.cells)} settings of {' and '.join(map(str, self.others))}"
        return f"This is with {self._setting(self.cells[0])}" if self.others else ""

    @property
    def _otherwise(self) -> str:
        """Return a sentence naming the groups that differ in the other direction than the mean, if there are some."""
        if not self.difference.significant:
            return ""
        values = [[_means([cell], side) for side in (0, 1)] for cell in self.cells]
        means = [fmean([level[seed] - baseline[seed] for seed in level] or [0.0]) for level, baseline in values]
        opposite = [cell for cell, mean in zip(self.cells, means, strict=True) if mean * self.difference.leaning < 0]
        where = " or ".join(map(self._setting, opposite[:3]))
        return f"It is the other way round with {where}{' or others' * (len(opposite) > 3)}" if opposite else ""

    def _setting(self, cell: Cell) -> str:
        return ", ".join(factor.told(factor.level(cell[0])) for factor in self.others)

    @property
    def row(self) -> list[str]:
        """Return the row of `factor_table`."""
        d = self.difference
        return [
            self.name,
            f"{self.level} instead of {self.baseline}",
            self.metric.text(d.mean, "+"),
            self.metric.interval(d.interval, "+"),
            "n/a" if d.p_value is None else p_text(d.p_value),
            str(d.n),
            str(len(self.cells)),
        ]


def effects_table(found: Sequence[Effect]) -> Table:
    remark = (
        f"An effect is the mean {found[0].metric.title} with one value of a setting minus the mean with another, "
        "paired by seed. It is averaged over the values of other settings that both were tried with. The last column "
        "counts them."
    )
    columns = ("name", "effect", "difference", "95 % interval, all at once", "p (Holm)", "n", "settings")
    return Table("Settings by themselves", columns, [effect.row for effect in found], remark, words=[1])


def by_name(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each name, in alphabetical order."""
    names = sorted({group.name for group in groups})
    return {name: [group for group in groups if group.name == name] for name in names}


def varied_settings(groups: Sequence[Group]) -> list[str]:
    """Return the settings of which the groups have several values."""
    names = dict.fromkeys(name for group in groups for name in group.settings)
    return [name for name in names if len({group.settings.get(name) for group in groups}) > 1]


def factors(groups: Sequence[Group], defaults: Mapping[str, str], baseline: str = "") -> list[Factor]:
    """Return the settings in which groups of one name differ. Values that are not known by default are ordered from
    those of the group `baseline` on.

    A setting that changes only with the one that contains it, as a.b does with a, is not one of them.
    """
    together: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in varied_settings(groups):
        values = [group.settings.get(name, "") for group in groups]
        together[tuple(map(values.index, values))].append(name)
    apart = [[name for name in of if name.rpartition(".")[0] not in of] for of in together.values()]
    return [_factor(groups, tuple(of), defaults, baseline) for of in apart]


def _factor(groups: Sequence[Group], names: Level, defaults: Mapping[str, str], baseline: str) -> Factor:
    of_baseline = next((group.settings for group in groups if group.label == baseline), {})
    usual = {**of_baseline, **defaults}
    levels = {tuple(group.settings.get(name, "") for name in names) for group in groups}
    ordered = sorted(levels, key=lambda level: (level != tuple(usual.get(name) for name in names), by_value(level)))
    return Factor(names, tuple(ordered))


def by_value(values: Iterable[str]) -> list[tuple[float, str]]:
    """Return the sort key of settings as typed: numbers by their size, then others."""
    return [(float(value), "") if is_number(value) else (math.inf, value) for value in values]


def is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def effects(
    groups: Sequence[Group],
    baseline: str,
    planned: SeedPlan,
    tested: Collection[tuple[str, str]],
    defaults: Mapping[str, Mapping[str, str]],
) -> list[Effect]:
    """Return every effect in a comparison: of each value of each factor instead of the first one, and for two switches
    of one alone instead of the other alone. Their p-values and intervals are not yet corrected.

    Effects that are a single pair of groups which the comparison has `tested` are left out: it would be the same test
    twice.
    """
    asked: list[tuple[str, str, str, list[Cell], list[Factor]]] = []
    for name, members in by_name(groups).items():
        of_name = factors(members, defaults.get(name, {}), baseline)
        changes: list[tuple[str, str, dict[Factor, tuple[Level, Level]]]] = [
            (factor.told(level), factor.told(factor.levels[0]), {factor: (level, factor.levels[0])})
            for factor in of_name
            for level in factor.levels[1:]
        ]
        for one, other in combinations([factor for factor in of_name if factor.is_switch], 2):
            swap: dict[Factor, tuple[Level, Level]] = {one: (("true",), ("false",)), other: (("false",), ("true",))}
            changes.append((f"{one} without {other}", f"{other} without {one}", swap))
        for level, other_level, change in changes:
            cells = _cells(members, of_name, change)
            first, second = (group.label for group in cells[0]) if len(cells) == 1 else ("", "")
            if cells and not {(first, second), (second, first)} & {*tested}:
                others = [factor for factor in of_name if factor not in change]
                asked.append((name, level, other_level, cells, others))
    values, seeds = {}, {}
    for place, (*_, cells, _) in enumerate(asked):
        values[place] = _means(cells, 0, diverged=True), _means(cells, 1, diverged=True)
        seeds[place] = frozenset[int]().union(*(planned.of_pair(one.label, other.label) for one, other in cells))
    metric = groups[0].metric
    alone = paired(values, proportion=metric.is_proportion, planned=seeds)
    lost = ", ".join(planned.lost)
    found = without_claims(alone, f"there is no finished run of {lost}") if lost else alone
    return [Effect(*one, metric, found[place]) for place, one in enumerate(asked)]


def _cells(
    groups: Sequence[Group], of_name: Sequence[Factor], change: Mapping[Factor, tuple[Level, Level]]
) -> list[Cell]:
    """Return the pairs of groups that differ by the change, {factor: (level, baseline)}, and in nothing else."""
    placed = {tuple(factor.level(group) for factor in of_name): group for group in groups}
    found = []
    for place, group in placed.items():
        wanted = [change.get(factor, (level, level)) for factor, level in zip(of_name, place, strict=True)]
        partner = placed.get(tuple(baseline for _, baseline in wanted))
        if partner is not None and place == tuple(level for level, _ in wanted):
            found.append((group, partner))
    return sorted(found, key=lambda cell: [by_value(factor.level(cell[0])) for factor in of_name])


def _means(cells: Sequence[Cell], side: int, diverged: bool = False) -> BySeed:
    """Return for each seed that all their groups have the mean over the cells, with the level (0) or the baseline (1).

    diverged: whether a diverged seed counts, with the worst figure.
    """
    values = [[group.outcomes if diverged else group.values for group in cell] for cell in cells]
    seeds = set.intersection(*(set(of_seeds) for of_cell in values for of_seeds in of_cell))
    return {seed: fmean(of_cell[side][seed] for of_cell in values) for seed in sorted(seeds)}


def effects_in_words(found: Sequence[Effect], matters: float | None = None) -> list[str]:
    """Return a sentence for each significant effect and, if there are many, one for all others of a name. matters: the
    difference that does."""
    if len(found) <= 3:
        return [effect.sentence(matters) for effect in found]
    texts = [effect.sentence(matters) for effect in found if effect.difference.significant]
    for name in dict.fromkeys(effect.name for effect in found):
        others = [
            f"{effect.level} instead of {effect.baseline}"
            for effect in found
            if effect.name == name and not effect.difference.significant
        ]
        texts += [f"{name}: no effect is shown of {', '.join(others)}."] if others else []
    return texts


def two_way_tables(groups: Sequence[Group], defaults: Mapping[str, Mapping[str, str]]) -> list[Table]:
    """Return tables of group means by two factors, over seeds and over those values of the others that all have.

    One for each pair of factors of each name, where some values of the others occur with all of theirs.
    """
    metric = groups[0].metric
    remark = (
        f"Cells are means of {metric.title} over seeds, and over the values of other settings that all cells have. If "
        "two settings act independently, rows differ by the same amount in every column. An empty cell was not tried."
    )
    tables = []
    for name, members in by_name(groups).items():
        of_name = factors(members, defaults.get(name, {}))
        for pair in combinations(of_name, 2):
            means = _cell_means(members, of_name, pair)
            if means:
                columns = [name, *map(pair[1].told, pair[1].levels)]
                rows = [
                    [pair[0].told(a), *(metric.text(means[a, b]) if (a, b) in means else "" for b in pair[1].levels)]
                    for a in pair[0].levels
                ]
                tables.append(Table(f"{name}: {pair[0]} by {pair[1]}", columns, rows, remark))
    return tables


def _cell_means(
    groups: Sequence[Group], of_name: Sequence[Factor], pair: tuple[Factor, Factor]
) -> dict[tuple[Level, Level], float]:
    """Return the mean for each two values that were trained, over the seeds and values of other factors that all
    have."""
    rest = [factor for factor in of_name if factor not in pair]
    cells: dict[tuple[Level, Level], dict[tuple[Level, ...], Group]] = defaultdict(dict)
    for group in groups:
        cells[pair[0].level(group), pair[1].level(group)][tuple(factor.level(group) for factor in rest)] = group
    shared = set.intersection(*(set(of_cell) for of_cell in cells.values()))
    compared = [of_cell[place] for of_cell in cells.values() for place in shared]
    seeds = set.intersection(*(set(group.values) for group in compared)) if compared else set()
    if not seeds:
        return {}
    return {
        place: fmean(of_cell[other].values[seed] for other in shared for seed in seeds)
        for place, of_cell in cells.items()
    }


def confounded(groups: Sequence[Group]) -> list[str]:
    """Return a sentence on factors that never differ alone between two groups, so that their effects are unknown."""
    unknown: dict[str, list[str]] = defaultdict(list)
    for name, members in by_name(groups).items():
        of_name = factors(members, {})
        for factor in of_name if len(of_name) > 1 else ():
            changes = [{factor: (level, other)} for level, other in combinations(factor.levels, 2)]
            if not any(_cells(members, of_name, change) for change in changes):
                unknown[str(factor)].append(name)
    return [
        f"{', '.join(of)}: no two groups differ in {factor} alone, so its effect is not known."
        for factor, of in unknown.items()
    ]


# Each name at its best setting


def chosen(groups: Sequence[Group], by: str | None) -> dict[str, Group]:
    """Return the group by which each name is judged: of several settings the best one by the metric `by`, else by the
    compared one.

    Only groups with the fewest diverged seeds are candidates, and only seeds count that all groups of the name have,
    where there are such. Versions of edited code are no settings that one could choose: the first has most runs.
    Raises BadSetting for a metric that no group has, or whose direction isn't known.
    """
    names = dict.fromkeys(name for group in groups for name, _ in group.known)
    if by is not None and by not in names:
        raise BadSetting("chosen_by", by, f"there is no such metric; {suggestion(by, names)}")
    if by is not None and by not in groups[0].signs:
        raise BadSetting("chosen_by", by, "the table doesn't say which is better, lower or higher")
    return {name: _chosen(of, by) for name, of in by_name(groups).items()}


def _chosen(groups: Sequence[Group], by: str | None) -> Group:
    if SOURCE in varied_settings(groups):
        return max(groups, key=lambda group: len(group.values))
    metric = groups[0].metric
    choosing = [_at_some_length(group, by) for group in groups]
    known = all(choosing)
    values = choosing if known else [group.values for group in groups]
    sign = groups[0].signs[by] if known and by else metric.sign
    common = set.intersection(*map(set, values))

    def badness(place: int) -> tuple[int, float]:
        return len(groups[place].diverged), sign * fmean(values[place][seed] for seed in common or values[place])

    return groups[min(range(len(groups)), key=badness)]


def _at_some_length(group: Group, metric: str | None) -> BySeed:
    """Return a metric of each seed at the compared length, else at the first one that it is known at."""
    of_lengths = (values for (name, _), values in group.known.items() if name == metric)
    return group.of(metric or "", group.metric.length) or next(of_lengths, {})


def choices_table(comparison: Comparison) -> Table | None:
    """Return the table of the usual and the chosen settings of each name; None if none was tried with several."""
    grids = {name: of for name, of in by_name(comparison.groups).items() if SOURCE not in varied_settings(of)}
    if all(len(of) == 1 for of in grids.values()):
        return None
    metric = comparison.metric
    known = sorted(n for name, n in comparison.groups[0].known if name == metric.name and n is not None)
    lengths: list[int | None] = [*(n for n in known if n >= (metric.length or 0))] or [metric.length]
    usual = {name: _usual(of, comparison.defaults.get(name, {})) for name, of in grids.items()}
    known_usual = any(usual[name] for name, of in grids.items() if len(of) > 1)
    shown = ["default", "chosen"] if known_usual else ["chosen"]
    columns = ["name", "settings tried", *shown]
    columns += [f"{metric.at(length).title}, {which}" for length in lengths for which in shown]
    rows = []
    for name, of in grids.items():
        best = next(group for group in of if group.label in comparison.chosen)
        both = [usual[name], best][-len(shown) :]
        row = [name, str(len(of)), *("not tried" if group is None else _told(group, of) for group in both)]
        row += [metric.text(group.mean(metric.name, length) if group else None) for length in lengths for group in both]
        rows.append(row)
    remark = f"Chosen: the setting with the best mean {comparison.chosen_by} over seeds."
    if comparison.chosen_by == metric.title:
        remark += " The values shown here chose it, so they favour names with many settings."
    if len({len(of) for of in grids.values()}) > 1:
        remark += " Some names were tried with more settings than others, so they had more chances."
    return Table(
        " and ".join(shown).capitalize() + " settings", columns, rows, remark, words=[*range(2, 2 + len(shown))]
    )


def _usual(groups: Sequence[Group], defaults: Mapping[str, str]) -> Group | None:
    """Return the group with the usual values, or None if there is none, or they are not known."""
    varied = varied_settings(groups)
    usual = (group for group in groups if all(group.settings.get(key) == defaults.get(key) for key in varied))
    return next(usual, None)


def _told(group: Group, groups: Sequence[Group]) -> str:
    """Return the group's settings as typed, "scale=32, max_distance=64"."""
    return ", ".join(f"{key}={group.settings.get(key)}" for key in varied_settings(groups))
