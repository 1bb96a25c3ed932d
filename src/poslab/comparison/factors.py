"""Factor effects in grids: the effect of each setting, averaged over the values of the others.

A scheme trained with several values of several settings is a grid of groups, and which of thirty groups is best is
seldom the question. An effect is the mean figure with one value of a setting less that with another, over those values
of all other settings with which both were trained, paired by seed. Each seed gives one such difference, so the test is
the paired one of two schemes (`statistics.paired`), in one family with all comparisons of the page. Where an average
hides two directions, the sentence says so.

Settings that always change together are one factor, as nothing can separate them.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from poslab.comparison.groups import Figures, Group, SeedPlan, remarks_on_convergence
from poslab.comparison.scores import Score
from poslab.config.nodes import default_settings
from poslab.errors import as_typed
from poslab.report.blocks import Table
from poslab.statistics.families import without_claims
from poslab.statistics.findings import finding, p_text
from poslab.statistics.paired import Difference, paired

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
        return " ".join(f"{name}={value}" for name, value in zip(self.names, level, strict=True) if value)

    @property
    def is_switch(self) -> bool:
        """Return whether it is a single setting that is on or off."""
        return {value for level in self.levels for value in level} == {"true", "false"} and len(self.names) == 1

    def __str__(self) -> str:
        return " and ".join(self.names)


@dataclass(frozen=True)
class Effect:
    """Effect of one value of a factor, `level`, instead of another, `baseline`, in words.

    cells: the pairs of groups averaged over. others: the factors whose values are equal within each pair. untrained:
    losses of models without training.
    """

    scheme: str
    level: str
    baseline: str
    cells: Sequence[Cell]
    others: Sequence[Factor]
    score: Score
    untrained: Mapping[str, float]
    difference: Difference

    @property
    def sentence(self) -> str:
        remarks = [*self._where, *self._otherwise]
        remarks += [self.score.remark] if self.score.remark else []
        if self.score.is_loss:
            sides = {self.level: [cell[0] for cell in self.cells], self.baseline: [cell[1] for cell in self.cells]}
            remarks += remarks_on_convergence(sides, self.difference, self.untrained)
        found = finding(self.level, self.baseline, self.difference, self.score.metric, remarks=remarks)
        return f"{self.scheme}: {found}"

    @property
    def _where(self) -> list[str]:
        if len(self.cells) > 1:
            return [f"a mean over {len(self.cells)} settings of {' and '.join(map(str, self.others))}"]
        return [f"with {self._setting(self.cells[0])}"] if self.others else []

    @property
    def _otherwise(self) -> list[str]:
        """Return a clause naming the groups that differ in the other direction than the mean, if there are some."""
        if not self.difference.significant:
            return []
        figures = [[_figures([cell], side) for side in (0, 1)] for cell in self.cells]
        means = [fmean([level[seed] - baseline[seed] for seed in level] or [0.0]) for level, baseline in figures]
        opposite = [cell for cell, mean in zip(self.cells, means, strict=True) if mean * self.difference.leaning < 0]
        where = " or ".join(map(self._setting, opposite[:3]))
        return [f"the other way round with {where}{' or others' * (len(opposite) > 3)}"] if opposite else []

    def _setting(self, cell: Cell) -> str:
        return ", ".join(factor.told(factor.level(cell[0])) for factor in self.others)

    @property
    def row(self) -> list[str]:
        """Return the row of `factor_table`."""
        d = self.difference
        return [
            self.scheme,
            f"{self.level} instead of {self.baseline}",
            self.score.text(d.mean, "+"),
            self.score.interval(d.interval, "+"),
            "n/a" if d.p_value is None else p_text(d.p_value),
            str(d.n),
            str(len(self.cells)),
        ]


def factor_table(found: Sequence[Effect]) -> Table:
    remark = (
        f"An effect is the mean {found[0].score} with one value of a setting less that with another, over those values "
        'of the other settings with which both were trained ("settings" counts them), seed by seed. p and intervals '
        "are corrected for these effects and all other comparisons of the page together."
    )
    columns = ("scheme", "effect", "difference", "simultaneous interval", "p (Holm)", "n", "settings")
    return Table("Settings by themselves", columns, [effect.row for effect in found], remark, words=[1])


def by_scheme(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each scheme, schemes in alphabetical order."""
    names = sorted({group.scheme for group in groups})
    return {name: [group for group in groups if group.scheme == name] for name in names}


def varied_settings(groups: Sequence[Group]) -> list[str]:
    """Return the settings of which the groups have several values."""
    names = dict.fromkeys(name for group in groups for name in group.settings)
    return [name for name in names if len({group.settings.get(name) for group in groups}) > 1]


def usual_settings(scheme: str) -> dict[str, str]:
    """Return the values of configs/pos, as typed; none of a scheme that isn't known there."""
    return {name: as_typed(value) for name, value in default_settings(scheme).items()}


def factors(groups: Sequence[Group], baseline: str = "") -> list[Factor]:
    """Return the settings in which groups of one scheme differ. Values that are not known by default are ordered from
    those of the group `baseline` on.

    A setting that changes only with the one that contains it, as a.b does with a, is not one of them.
    """
    together: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in varied_settings(groups):
        values = [group.settings.get(name, "") for group in groups]
        together[tuple(map(values.index, values))].append(name)
    apart = [[name for name in of if name.rpartition(".")[0] not in of] for of in together.values()]
    return [_factor(groups, tuple(of), baseline) for of in apart]


def _factor(groups: Sequence[Group], names: tuple[str, ...], baseline: str) -> Factor:
    of_baseline = next((group.settings for group in groups if group.label == baseline), {})
    usual = of_baseline | usual_settings(groups[0].scheme)
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
    untrained: Mapping[str, float],
) -> list[Effect]:
    """Return every effect in a comparison: of each value of each factor instead of the first one, and for two switches
    of one alone instead of the other alone. Their p-values and intervals are not yet corrected.

    Effects that are a single pair of groups which the comparison has `tested` are left out: it would be the same test
    twice.
    """
    asked: list[tuple[str, str, str, list[Cell], list[Factor]]] = []
    for scheme, members in by_scheme(groups).items():
        of_scheme = factors(members, baseline)
        changes: list[tuple[str, str, dict[Factor, tuple[Level, Level]]]] = [
            (factor.told(level), factor.told(factor.levels[0]), {factor: (level, factor.levels[0])})
            for factor in of_scheme
            for level in factor.levels[1:]
        ]
        for one, other in combinations([factor for factor in of_scheme if factor.is_switch], 2):
            swap: dict[Factor, tuple[Level, Level]] = {one: (("true",), ("false",)), other: (("false",), ("true",))}
            changes.append((f"{one} without {other}", f"{other} without {one}", swap))
        for level, other_level, change in changes:
            cells = _cells(members, of_scheme, change)
            first, second = (group.label for group in cells[0]) if len(cells) == 1 else ("", "")
            if cells and not {(first, second), (second, first)} & {*tested}:
                others = [factor for factor in of_scheme if factor not in change]
                asked.append((scheme, level, other_level, cells, others))
    figures, seeds = {}, {}
    for place, (*_, cells, _) in enumerate(asked):
        figures[place] = _figures(cells, 0, diverged=True), _figures(cells, 1, diverged=True)
        seeds[place] = frozenset[int]().union(*(planned.of_pair(one.label, other.label) for one, other in cells))
    score = groups[0].score
    alone = paired(figures, proportion=score.metric.is_proportion, planned=seeds)
    lost = ", ".join(planned.lost)
    found = without_claims(alone, f"there is no finished run of {lost}") if lost else alone
    return [Effect(*one, score, untrained, found[place]) for place, one in enumerate(asked)]


def _cells(
    groups: Sequence[Group], of_scheme: Sequence[Factor], change: Mapping[Factor, tuple[Level, Level]]
) -> list[Cell]:
    """Return the pairs of groups that differ by the change, {factor: (level, baseline)}, and in nothing else."""
    placed = {tuple(factor.level(group) for factor in of_scheme): group for group in groups}
    found = []
    for place, group in placed.items():
        wanted = [change.get(factor, (level, level)) for factor, level in zip(of_scheme, place, strict=True)]
        partner = placed.get(tuple(baseline for _, baseline in wanted))
        if partner is not None and place == tuple(level for level, _ in wanted):
            found.append((group, partner))
    return sorted(found, key=lambda cell: [by_value(factor.level(cell[0])) for factor in of_scheme])


def _figures(cells: Sequence[Cell], side: int, diverged: bool = False) -> Figures:
    """Return for each seed that all their groups have the mean over the cells, with the level (0) or the baseline (1).

    diverged: whether a diverged seed counts, with the worst figure.
    """
    values = [[group.outcomes if diverged else group.values for group in cell] for cell in cells]
    seeds = set.intersection(*(set(of_seeds) for of_cell in values for of_seeds in of_cell))
    return {seed: fmean(of_cell[side][seed] for of_cell in values) for seed in sorted(seeds)}


def in_words(found: Sequence[Effect]) -> list[str]:
    """Return a sentence for each significant effect and, if there are many, one for all others of a scheme."""
    if len(found) <= 3:
        return [effect.sentence for effect in found]
    texts = [effect.sentence for effect in found if effect.difference.significant]
    for scheme in dict.fromkeys(effect.scheme for effect in found):
        others = [
            f"{effect.level} instead of {effect.baseline}"
            for effect in found
            if effect.scheme == scheme and not effect.difference.significant
        ]
        texts += [f"{scheme}: no effect can be shown of {', '.join(others)}"] if others else []
    return texts


def two_way_tables(groups: Sequence[Group]) -> list[Table]:
    """Return tables of group means by two factors, over seeds and over those values of the others that all have.

    One for each pair of factors of each scheme, where some values of the others occur with all of theirs.
    """
    score = groups[0].score
    remark = (
        f"Means of the {score} over seeds, and over those values of further settings that all cells of a "
        "table have. Where two settings act apart, rows differ by the same amount in every column; surprising is a row "
        "whose order is another's reversed. Empty: not trained."
    )
    tables = []
    for scheme, members in by_scheme(groups).items():
        of_scheme = factors(members)
        for pair in combinations(of_scheme, 2):
            means = _means(members, of_scheme, pair)
            if means:
                text = score.text
                columns = [scheme, *map(pair[1].told, pair[1].levels)]
                rows = [
                    [pair[0].told(a), *(text(means[a, b]) if (a, b) in means else "" for b in pair[1].levels)]
                    for a in pair[0].levels
                ]
                tables.append(Table(f"{scheme}: {pair[0]} by {pair[1]}", columns, rows, remark))
    return tables


def _means(
    groups: Sequence[Group], of_scheme: Sequence[Factor], pair: tuple[Factor, Factor]
) -> dict[tuple[Level, Level], float]:
    """Return the mean for each two values that were trained, over the seeds and values of other factors that all
    have."""
    rest = [factor for factor in of_scheme if factor not in pair]
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
    for scheme, members in by_scheme(groups).items():
        of_scheme = factors(members)
        for factor in of_scheme if len(of_scheme) > 1 else ():
            changes = [{factor: (level, other)} for level, other in combinations(factor.levels, 2)]
            if not any(_cells(members, of_scheme, change) for change in changes):
                unknown[str(factor)].append(scheme)
    return [
        f"{', '.join(of)}: no two groups differ in {factor} alone, so its effect is not known"
        for factor, of in unknown.items()
    ]
