"""Comparison of the groups of a table of results, in figures and findings."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import pandas as pd

from poslab.comparison.factors import Effect, effects
from poslab.comparison.groups import Group, SeedPlan, groups_of, remarks_on_convergence
from poslab.comparison.scores import Score, score_of
from poslab.comparison.seeds_and_text import remarks_on_text, text_differences
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, require_one_of
from poslab.runs.load import Run
from poslab.statistics.families import one_family, without_claims
from poslab.statistics.findings import Finding, finding
from poslab.statistics.paired import Difference, paired
from poslab.statistics.remarks import looks_sentence, without_baseline

_OF_SOME_DATA = ("metric", "length", "validation", "baseline")  # settings that not all data need to know
UNTRAINED = ("uniform", "unigram", "bigram")  # models without training, of whose losses the table has a metric


@dataclass(frozen=True)
class Comparison:
    """Groups on the same data from the best to the worst, by `score`, and how each differs from the baseline.

    tested: pairs of groups, first minus second: all of them in the order of the groups, or each with the baseline.
    caveats: what weakens the answers. planned: the seeds that were planned. effect: the difference that matters.
    setting_effects: of values of settings. sections: how many comparisons the page has. looks: how often the figures
    are looked at, with seeds added in between.
    """

    score: Score
    groups: list[Group]
    baseline: str
    tested: Mapping[tuple[str, str], Difference]
    all_pairs: bool
    caveats: list[str]
    planned: SeedPlan
    effect: float | None = None
    setting_effects: Sequence[Effect] = ()
    sections: int = 1
    looks: int = 1

    @property
    def base(self) -> Group:
        return next(group for group in self.groups if group.label == self.baseline)

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

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @cached_property
    def untrained(self) -> dict[str, float]:
        """Return the losses of models without training, by name, if all runs share them."""
        found = {}
        for name in UNTRAINED if self.score.is_loss else ():
            means = {group.mean(f"{name}_loss") for group in self.groups}
            if len(means) == 1 and None not in means:
                found[name] = float(means.pop() or 0.0)
        return found

    @cached_property
    def over_text(self) -> dict[str, Difference]:
        """Return by label the differences from the baseline over seeds and text, where stretches of it are known."""
        return text_differences(self.base, self.groups, self.differences)

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """Return by label how each other group compares with the baseline, from the best to the worst."""
        others = [group for group in self.groups if group.label != self.baseline]
        return {group.label: self.finding_on(group, self.base, self.differences[group.label]) for group in others}

    @property
    def answers(self) -> dict[str, str]:
        return {label: re.sub("^no ", "No ", str(found)) for label, found in self.findings.items()}

    def finding_on(self, first: Group, second: Group, d: Difference) -> Finding:
        """Return the finding on two groups, with what weakens it."""
        remarks = [self.score.remark] if self.score.remark else []
        if second.label == self.baseline and d.significant and d.outcomes.complete:
            remarks += remarks_on_text(first, second, d, self.over_text.get(first.label))
        figures = {*first.values.values(), *second.values.values()}
        if self.score.metric.is_proportion and len(figures) == 1:
            remarks.append(f"both have {self.score.text(figures.pop())} {self.score} in all")  # 0, or 1, as a rule
        if self.score.is_loss:
            remarks += remarks_on_convergence({first.label: [first], second.label: [second]}, d, self.untrained)
        return finding(first.label, second.label, d, self.score.metric, self.effect, remarks)


def compare_table(
    table: pd.DataFrame, asked: CompareConfig, runs: Mapping[str, Run] | None = None
) -> tuple[dict[str, Comparison], dict[str, list[str]]]:
    """Compare the groups of a checked table, each kind of data by itself, corrected as one page; return comparisons,
    and notes, by the name of the data.

    asked: its metric, length, validation and baseline count for the data that know them. runs: by what is in column
    `folder`. Raises SettingError for what no data know, UserError without a finished run, and BadTable for columns that
    can't be settings.
    """
    found: dict[str, Comparison] = {}
    refused: dict[str, list[SettingError]] = {}
    for name, rows in table.groupby("data", sort=False):
        found[str(name)], refused[str(name)] = _compare_data(rows, asked, runs or {})
    for option in _OF_SOME_DATA:
        errors = [error for of_data in refused.values() for error in of_data if error.option == option]
        if len(errors) == len(found):
            raise errors[0]
    notes = {name: [f"{error}; what is usual takes its place" for error in of] for name, of in refused.items()}
    return dict(zip(found, as_one_page(list(found.values()), asked.looks), strict=True)), notes


def _compare_data(
    rows: pd.DataFrame, asked: CompareConfig, runs: Mapping[str, Run]
) -> tuple[Comparison, list[SettingError]]:
    """Compare the rows of one kind of data. What is asked and these data don't know is taken as usual, and the errors
    are returned."""
    try:
        score = score_of(rows, asked)
        groups, planned = groups_of(rows, score, runs)
        of_rows = rows.loc[rows["metric"] == score.name, "caveat"].unique()
        caveats = list(dict.fromkeys(line for cell in of_rows for line in cell.splitlines()))
        return compare_groups(groups, planned, asked, caveats), []
    except SettingError as error:
        usual = getattr(CompareConfig(), error.option)
        if error.option not in _OF_SOME_DATA or getattr(asked, error.option) == usual:
            raise
        comparison, errors = _compare_data(rows, replace(asked, **{error.option: usual}), runs)
        return comparison, [error, *errors]


def compare_groups(
    groups: Sequence[Group], planned: SeedPlan, asked: CompareConfig, caveats: Sequence[str]
) -> Comparison:
    """Compare groups with the baseline, by default the first, or all with each other; `as_one_page` corrects them."""
    all_pairs, baseline = asked.pairs == "all", _baseline(asked.baseline, groups)
    ranked = sorted(groups, key=lambda group: group.rank)
    labels, figures = [group.label for group in ranked], {group.label: group.outcomes for group in ranked}
    pairs = list(combinations(labels, 2) if all_pairs else ((label, baseline) for label in labels if label != baseline))
    tested = paired(
        {(first, second): (figures[first], figures[second]) for first, second in pairs},
        proportion=groups[0].score.metric.is_proportion,
        planned={pair: planned.of_pair(*pair) for pair in pairs},
        groups=planned.groups,
    )
    if planned.before and asked.baseline is None and not all_pairs:
        tested = without_claims(tested, without_baseline(planned.before))
    weak = [*caveats, *([looks_sentence(planned.earlier)] if planned.earlier else [])]
    comparison = Comparison(groups[0].score, ranked, baseline, tested, all_pairs, weak, planned, asked.effect)
    of_settings = effects(ranked, baseline, planned, tested, comparison.untrained)
    return replace(comparison, setting_effects=of_settings)


def as_one_page(comparisons: Sequence[Comparison], looks: int) -> list[Comparison]:
    """Return the comparisons with all that they test, pairs and effects of settings, corrected as one family.

    looks: how often the figures were planned to be looked at; more if a plan grew after a look.
    """
    tests: list[Mapping[Any, Difference]] = []
    planned = []
    for one in comparisons:
        groups = one.planned.groups
        tests += [one.tested, dict(enumerate(of.difference for of in one.setting_effects))]
        planned += [math.comb(groups, 2) if one.all_pairs else groups - 1, 0]
    looks = max([looks, *(1 + len(one.planned.earlier) for one in comparisons)])
    corrected = one_family(tests, planned, looks)
    found = []
    for one, tested, by_number in zip(comparisons, corrected[::2], corrected[1::2], strict=True):
        of_settings = [replace(of, difference=by_number[n]) for n, of in enumerate(one.setting_effects)]
        found.append(replace(one, tested=tested, setting_effects=of_settings, sections=len(comparisons), looks=looks))
    return found


def _baseline(given: str | None, groups: Sequence[Group]) -> str:
    """Return the label given, or that of the first group with all the settings in it, "SCHEME max_distance=16"; without
    one that of the first. Raises SettingError if there is none."""
    labels = [group.label for group in groups]
    if given is None or given in labels:
        return given or labels[0]
    found = [group.label for group in groups if group.is_named(given)]
    if not found:
        require_one_of(labels, baseline=given)
    return found[0]
