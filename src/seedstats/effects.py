"""Effects of settings, each by itself, where a name was tried with several values of several settings.

The effect of a setting is the mean with one of its values less that with another, over those values of all other
settings with which both were tried, paired by seed. Each seed gives one such difference, so the test is the paired one
of two groups (`statistics.paired`), in one family with all comparisons of the page. Where an average hides two
directions, the sentence says so. Settings that always change together are one factor, as nothing can separate them.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from seedstats.finding import finding, p_text
from seedstats.groups import BySeed, Group, SeedPlan, by_name, by_value, varied_settings
from seedstats.metric import Metric
from seedstats.page.blocks import Table
from seedstats.statistics.families import without_claims
from seedstats.statistics.paired import Difference, paired

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
        settings = [f"{name}={value}" for name, value in zip(self.names, level, strict=True) if value]
        return " ".join(settings) or f"no {self}"

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
        first, second = (f"{self.name} with {level}" for level in (self.level, self.baseline))
        return str(finding(first, second, self.difference, self.metric, effect, self._otherwise or self._where))

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
        values = [[cell_means([cell], side) for side in (0, 1)] for cell in self.cells]
        means = [fmean([level[seed] - baseline[seed] for seed in level] or [0.0]) for level, baseline in values]
        opposite = [cell for cell, mean in zip(self.cells, means, strict=True) if mean * self.difference.leaning < 0]
        where = " or ".join(map(self._setting, opposite[:3]))
        return f"It is the other way round with {where}{' or others' * (len(opposite) > 3)}" if opposite else ""

    def _setting(self, cell: Cell) -> str:
        return ", ".join(factor.told(factor.level(cell[0])) for factor in self.others)


def effects_table(effects: Sequence[Effect]) -> Table | None:
    """Return the table of effects; None if there are none."""
    if not effects:
        return None
    metric = effects[0].metric
    rows = [
        [
            effect.name,
            f"{effect.level} instead of {effect.baseline}",
            metric.text(effect.difference.mean, "+"),
            metric.interval(effect.difference.interval, "+"),
            "n/a" if effect.difference.p_value is None else p_text(effect.difference.p_value),
            str(effect.difference.n),
            str(len(effect.cells)),
        ]
        for effect in effects
    ]
    remark = (
        f"An effect is the mean {metric.title} with one value of a setting minus the mean with another, paired by "
        "seed. It is averaged over the values of other settings that both were tried with. The last column counts them."
    )
    columns = ("name", "effect", "difference", "95 % interval, all at once", "p (Holm)", "n", "settings")
    return Table("Settings by themselves", columns, rows, remark, words=[1])


def factors(groups: Sequence[Group], defaults: Mapping[str, str], baseline: str = "") -> list[Factor]:
    """Return the settings in which groups of one name differ. Values that are not known by default are ordered from
    those of the group `baseline` on.

    A setting that changes only with the one that contains it, as a.b does with a, is not one of them.
    """
    together: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in varied_settings(groups):
        values = [group.settings.get(name, "") for group in groups]
        together[tuple(map(values.index, values))].append(name)
    baseline_settings = next((group.settings for group in groups if group.label == baseline), {}) | {**defaults}
    factors_of_name = []
    for of in together.values():
        names = tuple(name for name in of if name.rpartition(".")[0] not in of)
        levels = {tuple(group.settings.get(name, "") for name in names) for group in groups}
        first = tuple(baseline_settings.get(name) for name in names)
        factors_of_name.append(Factor(names, tuple(sorted(levels, key=lambda of: (of != first, by_value(of))))))
    return factors_of_name


def effects(
    groups: Sequence[Group],
    baseline: str,
    planned: SeedPlan,
    tested: Collection[tuple[str, str]],
    defaults: Mapping[str, Mapping[str, str]],
) -> list[Effect]:
    """Return every effect in a comparison, of each value of each factor instead of the first one. Their p-values and
    intervals are not yet corrected.

    Effects that are a single pair of groups which the comparison has `tested` are left out: it would be the same test
    twice.
    """
    asked: list[tuple[str, str, str, list[Cell], list[Factor]]] = []
    for name, members in by_name(groups).items():
        factors_of_name = factors(members, defaults.get(name, {}), baseline)
        for factor in factors_of_name:
            for level in factor.levels[1:]:
                cells = cells_of(members, factors_of_name, factor, level, factor.levels[0])
                labels = [(first.label, second.label) for first, second in cells]
                pairs = {*labels, *((second, first) for first, second in labels)}
                if len(cells) > 1 or (cells and not pairs & {*tested}):
                    others = [other for other in factors_of_name if other is not factor]
                    asked.append((name, factor.told(level), factor.told(factor.levels[0]), cells, others))
    values, seeds = {}, {}
    for place, (*_, cells, _) in enumerate(asked):
        values[place] = cell_means(cells, 0, diverged=True), cell_means(cells, 1, diverged=True)
        seeds[place] = frozenset[int]().union(*(planned.of_pair(first.label, second.label) for first, second in cells))
    metric = groups[0].metric
    differences = paired(values, proportion=metric.is_proportion, planned=seeds)
    if planned.lost:
        differences = without_claims(differences, f"there is no finished run of {', '.join(planned.lost)}")
    return [Effect(*effect, metric, differences[place]) for place, effect in enumerate(asked)]


def cells_of(
    groups: Sequence[Group], factors_of_name: Sequence[Factor], factor: Factor, level: Level, other: Level
) -> list[Cell]:
    """Return the pairs of groups of which the first has this level of the factor and the second the other one, and that
    differ in nothing else."""
    rest = [of for of in factors_of_name if of is not factor]
    sides = [
        {tuple(of.level(group) for of in rest): group for group in groups if factor.level(group) == side}
        for side in (level, other)
    ]
    common = sorted(sides[0].keys() & sides[1].keys(), key=lambda place: [by_value(of) for of in place])
    return [(sides[0][place], sides[1][place]) for place in common]


def cell_means(cells: Sequence[Cell], side: int, diverged: bool = False) -> BySeed:
    """Return for each seed that all their groups have the mean over the cells, with the level (0) or the baseline (1).

    diverged: whether a diverged seed counts, with the worst figure.
    """
    values = [[group.outcomes if diverged else group.values for group in cell] for cell in cells]
    seeds = set.intersection(*(set(by_seed) for sides in values for by_seed in sides))
    return {seed: fmean(sides[side][seed] for sides in values) for seed in sorted(seeds)}


def effects_in_words(effects: Sequence[Effect], matters: float | None = None) -> list[str]:
    """Return a sentence for each significant effect and, if there are many, one for all others of a name. matters: the
    difference that does."""
    if len(effects) <= 3:
        return [effect.sentence(matters) for effect in effects]
    texts = [effect.sentence(matters) for effect in effects if effect.difference.significant]
    others: dict[str, list[str]] = defaultdict(list)
    for effect in effects:
        if not effect.difference.significant:
            others[effect.name].append(f"{effect.level} instead of {effect.baseline}")
    return texts + [f"{name}: no effect is shown of {', '.join(of)}." for name, of in others.items()]


def confounded(groups: Sequence[Group]) -> list[str]:
    """Return a sentence on factors that never differ alone between two groups, so that their effects are unknown."""
    unknown: dict[str, list[str]] = defaultdict(list)
    for name, members in by_name(groups).items():
        factors_of_name = factors(members, {})
        for factor in factors_of_name if len(factors_of_name) > 1 else ():
            if not any(cells_of(members, factors_of_name, factor, *two) for two in combinations(factor.levels, 2)):
                unknown[str(factor)].append(name)
    return [
        f"{', '.join(of)}: no two groups differ in {factor} alone, so its effect is not known."
        for factor, of in unknown.items()
    ]
