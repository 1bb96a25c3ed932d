"""Comparison of the groups of a table of results."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from numbers import Integral, Real
from typing import Any, Literal

import pandas as pd

from seedstats.choosing import chosen
from seedstats.effects import Effect, effects
from seedstats.errors import BadSetting, suggestion
from seedstats.groups import Group, SeedPlan, groups_of, references_of
from seedstats.interactions import Interaction, interactions
from seedstats.metric import Metric, metric_of
from seedstats.statistics.best import BestSet, best_set, shown
from seedstats.statistics.failures import failed_seeds
from seedstats.statistics.families import one_family, without_claims
from seedstats.statistics.intervals import CONFIDENCE
from seedstats.statistics.paired import FEWEST_SEEDS, Difference, paired

Defaults = Mapping[str, Mapping[str, str]]  # by name, the usual values of settings


@dataclass(frozen=True)
class Comparison:
    """Groups on the same data from the best to the worst, by `metric`, and how each differs from the baseline.

    tested: pairs of groups, first minus second: all of them in the order of the groups, or each with the baseline.
    caveats: what weakens the answers. planned: the seeds that were planned. effect: the difference that matters.
    references: values that no run has, by name, and what it means to be worse. setting_effects: of values of settings.
    chosen: the labels of the groups that each name is judged by: at its best setting, where it has several. chosen_by:
    the metric that chose them. candidates: from how many groups the baseline was chosen. notes: what was asked, and
    these data don't know. sections: how many comparisons the page has. looks: how often the values are looked at, with
    seeds added in between.
    """

    metric: Metric
    groups: list[Group]
    baseline: str
    tested: Mapping[tuple[str, str], Difference]
    all_pairs: bool
    planned: SeedPlan
    caveats: list[str] = field(default_factory=list)
    effect: float | None = None
    references: Mapping[str, float] = field(default_factory=dict)
    worse_than: Mapping[str, str] = field(default_factory=dict)
    setting_effects: Sequence[Effect] = ()
    interactions: Sequence[Interaction] = ()
    chosen: Sequence[str] = ()
    chosen_by: str = ""
    candidates: int = 1
    defaults: Defaults = field(default_factory=dict)
    notes: Sequence[str] = ()
    sections: int = 1
    looks: int = 1

    def group(self, label: str) -> Group:
        return next(group for group in self.groups if group.label == label)

    @property
    def base(self) -> Group:
        return self.group(self.baseline)

    @property
    def in_grids(self) -> bool:
        """Return whether several names are compared, and one of them has several settings."""
        return 1 < len(self.chosen) < len(self.groups)

    @property
    def judged(self) -> list[Group]:
        """Return the groups that the first answers are about: one for each name, or all of a single name."""
        return [group for group in self.groups if not self.in_grids or group.label in self.chosen]

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Return by label how each other group differs from the baseline, group minus baseline."""
        first = {pair[0]: d for pair, d in self.tested.items() if pair[1] == self.baseline}
        return first | {pair[1]: d.reversed for pair, d in self.tested.items() if pair[0] == self.baseline}

    @property
    def pairs(self) -> Mapping[tuple[str, str], Difference]:
        """Return the differences of all pairs, if all were tested."""
        return self.tested if self.all_pairs else {}

    @property
    def comparisons(self) -> int:
        """Return the number of comparisons of the page, by which p-values and intervals are corrected."""
        return max((d.comparisons for d in self.differences.values()), default=1)

    @cached_property
    def shown(self) -> list[tuple[str, str]]:
        """Return the tested pairs that are shown to differ, as (better, worse)."""
        return shown(self.tested, lower=not self.metric.higher_is_better)

    @cached_property
    def failed(self) -> dict[str, list[int]]:
        """Return the seeds whose runs failed (`statistics.failures`), by the label of their group; of proportions,
        which have ends, there are none."""
        if self.metric.is_proportion:
            return {}
        values = {group.label: group.values for group in self.groups}
        return failed_seeds(values, self.metric.sign, self.effect or 0.0)

    @cached_property
    def best(self) -> BestSet | None:
        """Return the groups that may be the best, of those whose seeds have not diverged; None unless two of them have
        FEWEST_SEEDS seeds."""
        judged = {group.label: group for group in self.judged if not group.diverged}
        values = {label: group.values for label, group in judged.items() if len(group.values) >= FEWEST_SEEDS}
        if len(values) < 2:
            return None
        # A name is judged at the best of its settings, so each of these is a chance to seem better.
        chances = max(Counter(group.name for group in self.groups).values()) if self.in_grids else 1
        return best_set(
            values,
            self.shown,
            None if self.all_pairs else self.baseline,
            lower=not self.metric.higher_is_better,
            proportion=self.metric.is_proportion,
            confidence=1 - (1 - CONFIDENCE) / self.sections / self.looks / chances,
        )


def compare(
    table: pd.DataFrame,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    length: int | None = None,
    better: str | None = None,
    pairs: Literal["baseline", "all"] = "baseline",
    effect: float | None = None,
    looks: int = 1,
    chosen_by: str | None = None,
    defaults: Defaults | None = None,
) -> dict[str, Comparison]:
    """Compare the groups of a checked table, each kind of data by itself, corrected as one page.

    baseline: a name, at the best of its settings, or of those that are given ("NAME scale=32"); by default that of the
    first row. metric, length: by default those of the first row. better: "lower" or "higher", where the table doesn't
    say. pairs: each group with the baseline, or all pairs. effect: the difference that matters, in the metric's unit.
    looks: how often you will look, adding seeds in between. chosen_by: the metric that chooses among the settings of a
    name, by default the compared one. defaults: of each name, the usual values of settings.

    Returns the comparisons by the name of their data. Raises BadSetting for values that can't be and for what no data
    know, and BadTable for columns that can't be settings and without a finished run.
    """
    for option, text, choices in (("better", better, ("lower", "higher")), ("pairs", pairs, ("baseline", "all"))):
        if text not in (None, *choices):
            raise BadSetting(option, text, f"must be {' or '.join(choices)}")
    numbers: tuple[tuple[str, Any, Any, str], ...] = (
        ("effect", 1 if effect is None else effect, Real, "a number"),
        ("looks", looks, Integral, "a whole number"),
    )
    for option, number, kind, words in numbers:
        if not (isinstance(number, kind) and 0 < number < math.inf):
            raise BadSetting(option, number, f"must be {words} above 0")
    asked: dict[str, Any] = {"baseline": baseline, "metric": metric, "length": length, "chosen_by": chosen_by}
    comparisons: dict[str, Comparison] = {}
    refused: dict[str, list[BadSetting]] = {}
    for name, rows in table.groupby("data", sort=False):
        usual = {"all_pairs": pairs == "all", "effect": effect, "defaults": defaults or {}}
        comparisons[str(name)], refused[str(name)] = _compare_data(rows, asked, better, usual)
    for option in asked:
        errors = [error for errors_of_data in refused.values() for error in errors_of_data if error.option == option]
        if len(errors) == len(comparisons):
            raise errors[0]
    for name, errors in refused.items():
        comparisons[name] = replace(comparisons[name], notes=[f"{error}; the default is used" for error in errors])
    return dict(zip(comparisons, _as_one_page(list(comparisons.values()), looks), strict=True))


def _compare_data(
    rows: pd.DataFrame, asked: Mapping[str, Any], better: str | None, usual: Mapping[str, Any]
) -> tuple[Comparison, list[BadSetting]]:
    """Compare the rows of one kind of data, each pair by itself. What is asked and these data don't know is taken as
    usual, and the errors are returned."""
    try:
        metric = metric_of(rows, asked["metric"], asked["length"], better)
        groups, planned = groups_of(rows, metric)
        comparison = compare_groups(groups, planned, asked["baseline"], asked["chosen_by"], **usual)
    except BadSetting as error:
        if asked.get(error.option) is None:
            raise
        comparison, errors = _compare_data(rows, {**asked, error.option: None}, better, usual)
        return comparison, [error, *errors]
    cells = rows.loc[(rows["metric"] == metric.name) & rows["seed"].notna(), "caveat"].unique()
    caveats = list(dict.fromkeys(line for cell in cells for line in cell.splitlines()))
    references, worse = references_of(rows, metric)
    return replace(comparison, caveats=[*caveats, *comparison.caveats], references=references, worse_than=worse), []


def compare_groups(
    groups: Sequence[Group],
    planned: SeedPlan,
    baseline: str | None,
    chosen_by: str | None,
    *,
    all_pairs: bool,
    effect: float | None,
    defaults: Defaults,
) -> Comparison:
    """Compare groups with the baseline, or all with each other, each pair by itself; the arguments are those of
    `compare`."""
    ranked = sorted(groups, key=lambda group: group.rank)
    by_name = chosen(ranked, chosen_by)
    in_grids = 1 < len(by_name) < len(groups)
    named = _named(baseline or groups[0].name, groups) if baseline or in_grids else groups[:1]
    # The best of several is compared with the others as if each of them had been the baseline.
    candidates = named if in_grids else named[:1]
    base = chosen(candidates, chosen_by)[named[0].name].label
    outcomes = {group.label: group.outcomes for group in ranked}
    pairs = list(combinations(outcomes, 2) if all_pairs else ((label, base) for label in outcomes if label != base))
    tested = paired(
        {(first, second): (outcomes[first], outcomes[second]) for first, second in pairs},
        proportion=groups[0].metric.is_proportion,
        planned={pair: planned.of_pair(*pair) for pair in pairs},
        groups=planned.groups,
    )
    if planned.before and baseline is None and not all_pairs:
        have = "has" if len(planned.before) == 1 else "have"
        why = f"the baseline would be {' or '.join(planned.before)}, which {have} no finished run"
        tested = without_claims(tested, why)
    return Comparison(
        groups[0].metric,
        ranked,
        base,
        tested,
        all_pairs,
        planned,
        [_looked(planned.earlier)] if planned.earlier else [],
        effect,
        setting_effects=effects(ranked, base, planned, tested, defaults),
        interactions=interactions(ranked, base, planned, defaults),
        chosen=[group.label for group in by_name.values()],
        chosen_by=chosen_by or groups[0].metric.title,
        candidates=len(candidates),
        defaults=defaults,
    )


def _looked(earlier: Sequence[int]) -> str:
    """Return the caveat on seeds that were planned after comparisons of so many seeds."""
    before = ", then ".join(f"{seeds} seeds" for seeds in earlier)
    return (
        f"Further seeds were planned after a comparison of {before}. Looking again finds more differences by chance, "
        f"so p-values and intervals are corrected for {1 + len(earlier)} looks"
    )


def _named(text: str, groups: Sequence[Group]) -> list[Group]:
    """Return the groups that are named so. Raises BadSetting if there is none."""
    named_groups = [group for group in groups if group.is_named(text)]
    if not named_groups:
        raise BadSetting("baseline", text, f"unknown; {suggestion(text, [group.label for group in groups])}")
    return named_groups


def _as_one_page(comparisons: Sequence[Comparison], looks: int) -> list[Comparison]:
    """Return the comparisons with all that they test corrected: pairs and effects of settings as one family,
    interactions as another one.

    looks: how often the values were planned to be looked at; more if a plan grew after a look.
    """
    tests: list[Mapping[Any, Difference]] = []
    planned = []
    for comparison in comparisons:
        groups = comparison.planned.groups
        tests += [comparison.tested, dict(enumerate(of.difference for of in comparison.setting_effects))]
        planned += [math.comb(groups, 2) if comparison.all_pairs else comparison.candidates * (groups - 1), 0]
    looks = max([looks, *(1 + len(comparison.planned.earlier) for comparison in comparisons)])
    corrected = one_family(tests, planned, looks)
    crossed_tests = [dict(enumerate(of.difference for of in comparison.interactions)) for comparison in comparisons]
    crossed = one_family(crossed_tests, None, looks)
    page = []
    for place, comparison in enumerate(comparisons):
        tested, alone, among = corrected[2 * place], corrected[2 * place + 1], crossed[place]
        page.append(
            replace(
                comparison,
                tested=tested,
                setting_effects=[replace(of, difference=alone[n]) for n, of in enumerate(comparison.setting_effects)],
                interactions=[replace(of, difference=among[n]) for n, of in enumerate(comparison.interactions)],
                sections=len(comparisons),
                looks=looks,
            )
        )
    return page
