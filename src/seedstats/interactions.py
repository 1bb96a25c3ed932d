"""Interactions: whether the difference between a name and the baseline depends on another setting.

An interaction is a difference of differences: the difference between a name and that of the baseline with one value of
a setting, minus the same with another value, averaged over the values of all other settings that both names were tried
with. Each seed gives one, so the test is the paired one of two groups (`statistics.paired`). All interactions of a
page are a family of their own, because it asks first which name is best, and then where.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from seedstats.effects import Cell, cell_means, cells_of, factors
from seedstats.finding import amount, finding, p_text
from seedstats.groups import BySeed, Group, SeedPlan, by_name
from seedstats.metric import Metric
from seedstats.page.blocks import Table
from seedstats.statistics.families import without_claims
from seedstats.statistics.paired import Difference, paired


@dataclass(frozen=True)
class Interaction:
    """Difference between a name and the baseline's with a value of a setting, `level`, minus that with `other`.

    at_level, at_other: the two differences by seed.
    """

    name: str
    baseline: str
    level: str
    other: str
    at_level: BySeed
    at_other: BySeed
    metric: Metric
    difference: Difference

    @property
    def sentence(self) -> str:
        """Return the finding, where the interaction is shown."""
        word = finding(self.name, self.baseline, self.difference, self.metric).word
        compared = f"With {self.level} instead of {self.other}, {self.name} does {word} against {self.baseline}"
        return f"{compared}: {amount(self.difference, self.metric)}."


def interactions(
    groups: Sequence[Group], baseline: str, planned: SeedPlan, defaults: Mapping[str, Mapping[str, str]]
) -> list[Interaction]:
    """Return the interactions of each name with each setting that it and the baseline's name were tried with. Their
    p-values and intervals are not yet corrected."""
    metric = groups[0].metric
    first = next(group.name for group in groups if group.label == baseline)
    members = by_name(groups)
    baseline_factors = {factor.names: factor for factor in factors(members[first], defaults.get(first, {}))}
    asked: list[tuple[str, str, str]] = []
    differences: dict[int, tuple[BySeed, BySeed]] = {}
    seeds: dict[int, frozenset[int]] = {}
    for name, own in members.items():
        if name == first:
            continue
        own_factors = [baseline_factors.get(of.names, of) for of in factors(own, defaults.get(name, {}))]
        shared = [factor for factor in own_factors if factor.names in baseline_factors]
        for factor, level in [(of, level) for of in shared for level in of.levels[1:]]:
            cells = cells_of(own, own_factors, factor, level, factor.levels[0])
            base_cells = cells_of(members[first], [*baseline_factors.values()], factor, level, factor.levels[0])
            if cells and base_cells:
                place = len(asked)
                differences[place] = _less(cells, base_cells, 0), _less(cells, base_cells, 1)
                pairs = ((at_level.label, at_other.label) for at_level, at_other in (*cells, *base_cells))
                seeds[place] = frozenset[int]().union(*(planned.of_pair(*pair) for pair in pairs))
                asked.append((name, factor.told(level), factor.told(factor.levels[0])))
    tested = paired(differences, proportion=metric.is_proportion, planned=seeds)
    if planned.lost:
        tested = without_claims(tested, f"there is no finished run of {', '.join(planned.lost)}")
    return [
        Interaction(name, first, level, other, *differences[place], metric, tested[place])
        for place, (name, level, other) in enumerate(asked)
    ]


def _less(cells: Sequence[Cell], base_cells: Sequence[Cell], side: int) -> BySeed:
    """Return by seed the mean over a name's cells less the baseline's, with the level (0) or the other (1).

    A seed of which any run diverged has none, and so nothing is claimed.
    """
    own, base = cell_means(cells, side), cell_means(base_cells, side)
    return {seed: own[seed] - base[seed] for seed in own.keys() & base.keys()}


def interactions_in_words(interactions: Sequence[Interaction]) -> list[str]:
    """Return a sentence for each interaction that is shown, or one where none is; none where none was tested."""
    shown = [interaction.sentence for interaction in interactions if interaction.difference.significant]
    if shown or not any(interaction.difference.p_value is not None for interaction in interactions):
        return shown
    settings = " or ".join(dict.fromkeys(interaction.level.partition("=")[0] for interaction in interactions))
    tests = "1 interaction" if len(interactions) == 1 else f"{len(interactions)} interactions"
    return [f"No difference from {interactions[0].baseline} is shown to depend on {settings} ({tests})."]


def interactions_table(interactions: Sequence[Interaction]) -> Table | None:
    """Return the table of interactions; None if there are none."""
    if not interactions:
        return None
    metric, baseline = interactions[0].metric, interactions[0].baseline
    rows = [
        [
            interaction.name,
            f"{interaction.level} against {interaction.other}",
            metric.text(_mean(interaction.at_level), "+"),
            metric.text(_mean(interaction.at_other), "+"),
            metric.text(interaction.difference.mean, "+"),
            metric.interval(interaction.difference.interval, "+"),
            "n/a" if interaction.difference.p_value is None else p_text(interaction.difference.p_value),
            str(interaction.difference.n),
        ]
        for interaction in interactions
    ]
    remark = (
        f"An interaction is the difference from {baseline} with the first value of a setting minus the difference with "
        "the second, paired by seed. Its p-value and interval are corrected for all interactions of this report."
    )
    heads = ("name", "setting", "with the first", "with the second", "interaction", "95 % interval", "p (Holm)", "n")
    return Table(f"Does the difference from {baseline} depend on a setting?", heads, rows, remark, words=[1])


def _mean(values: Mapping[int, float]) -> float | None:
    return fmean(values.values()) if values else None
