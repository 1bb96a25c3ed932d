"""Comparison of the groups of a table of results, in figures and findings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import pandas as pd

from poslab.comparison.factors import Effect, effects
from poslab.comparison.groups import Group, SeedPlan, groups_of
from poslab.comparison.scores import Score, score_of
from poslab.comparison.seeds_and_text import checkpoint_sentences, remarks_on_text, text_differences
from poslab.config.contrasts import named
from poslab.errors import SettingError, UserError, require_one_of
from poslab.runs.load import Run
from poslab.statistics.best import BestSet, best_set
from poslab.statistics.families import one_family, without_claims
from poslab.statistics.findings import (
    Finding,
    Shown,
    best_sentence,
    convergence_remarks,
    finding,
    looks_sentence,
    lost_sentence,
    solved_sentence,
    unfailed_sentence,
    without_baseline,
)
from poslab.statistics.paired import CONFIDENCE, FEWEST_SEEDS, Difference, paired
from poslab.statistics.proportions import proportion

UNTRAINED = ("uniform", "unigram", "bigram")  # models without training, of whose losses the table has a metric


@dataclass(frozen=True)
class Comparison:
    """Groups on the same data from the best to the worst, by `score`, and how each differs from the baseline.

    caveats: what weakens the answers. planned: the seeds that were planned. effect: the difference that matters. pairs:
    for each pair, in the order of the groups, first minus second, if all pairs were tested; `differences` are then
    those with the baseline. setting_effects: of values of settings. sections: how many
    comparisons the page has. looks: how often the figures are looked at, with seeds added in between.
    """

    score: Score
    groups: list[Group]
    baseline: str
    differences: Mapping[str, Difference]
    caveats: list[str]
    planned: SeedPlan
    effect: float | None = None
    pairs: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    setting_effects: Sequence[Effect] = ()
    sections: int = 1
    looks: int = 1

    @property
    def base(self) -> Group:
        return next(group for group in self.groups if group.label == self.baseline)

    @property
    def comparisons(self) -> int:
        """Return the number of comparisons of the page, by which p-values and intervals are corrected."""
        return max((d.comparisons for d in self.differences.values()), default=1)

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def by_scheme(self) -> dict[str, list[Group]]:
        """Return the groups of each scheme, schemes in alphabetical order."""
        names = sorted({group.scheme for group in self.groups})
        return {name: [group for group in self.groups if group.scheme == name] for name in names}

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
        return {group.label: self._finding(group, self.base, self.differences[group.label]) for group in others}

    @property
    def answers(self) -> dict[str, str]:
        return {label: _sentence(str(found)) for label, found in self.findings.items()}

    @cached_property
    def of_pairs(self) -> list[str]:
        """Return sentences on the pairs without the baseline that are shown to differ, the better group first."""
        texts, by_label = [], {group.label: group for group in self.groups}
        for (first, second), d in self.pairs.items():
            if self.baseline not in (first, second) and d.significant:
                better = d.leaning * self.score.metric.sign < 0
                pair = by_label[first], by_label[second]
                found = self._finding(*pair, d) if better else self._finding(*pair[::-1], d.reversed)
                texts.append(_sentence(str(found)))
        return texts

    @cached_property
    def further(self) -> list[str]:
        """Return sentences on how many pairs differ, lost groups and single checkpoints."""
        texts = []
        if not self.answers:
            n = len(self.base.values)
            texts.append(f"only {self.baseline} is here (n = {n}), so there is nothing to compare it with")
        if len(self.pairs) > 1:
            shown = sum(d.significant for d in self.pairs.values())
            texts.append(f"of all {len(self.pairs)} pairs {shown} are shown to differ")
        planned = self.planned
        texts += [lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]) for name in planned.lost]
        return texts + checkpoint_sentences(self.base, self.groups, self.differences)

    @property
    def sentences(self) -> list[str]:
        return [*self.answers.values(), *self.of_pairs, *self.further]

    @cached_property
    def best(self) -> BestSet | None:
        """Return the groups not shown to be worse than any other; None with missing or too few seeds, or one group."""
        complete = not self.planned.lost and all(
            group.values.keys() | set(group.diverged) >= self.planned.seeds[group.label] for group in self.groups
        )
        figures = {group.label: group.values for group in self.groups if not group.diverged}
        if not complete or len(figures) < 2 or min(map(len, figures.values())) < FEWEST_SEEDS:
            return None
        lower, proportion = self.score.metric.sign > 0, self.score.metric.is_proportion
        confidence = 1 - (1 - CONFIDENCE) / self.sections / self.looks
        return best_set(figures, lower=lower, proportion=proportion, confidence=confidence)

    @property
    def in_short(self) -> list[str]:
        """Return the sentences on all groups together: which may be the best, and what no test of these seeds knows."""
        texts = []
        if self.best:
            others = [group.label for group in self.groups if group.label not in self.best.members]
            texts.append(best_sentence(self.best, others))
        failed = any(group.diverged for group in self.groups)
        counts = {len(group.values) for group in self.groups}
        shown = any(isinstance(found, Shown) for found in self.findings.values())
        if shown and not failed and len(counts) == 1 and not self.score.metric.is_proportion:
            texts.append(unfailed_sentence(counts.pop()))
        for group in self.groups if shown else ():
            solved = group.figures("solved") if group.figures("steps_to_solve") else {}
            if solved and group.label in (self.baseline, *(self.best.members if self.best else ())[:1]):
                texts.append(solved_sentence(group.label, proportion(int(sum(solved.values())), len(solved))))
        return texts

    def _finding(self, first: Group, second: Group, d: Difference) -> Finding:
        """Return the finding on two groups, with what weakens it."""
        remarks = [self.score.remark] if self.score.remark else []
        if second.label == self.baseline and d.significant and d.outcomes.complete:
            remarks += remarks_on_text(first, second, d, self.over_text.get(first.label))
        if self.score.is_loss:
            losses = {group.label: group.estimate.mean for group in (first, second)}
            falls = {group.label: group.mean("late_fall") or 0.0 for group in (first, second)}
            remarks += convergence_remarks(d, losses, self.untrained, falls)
        return finding(first.label, second.label, d, self.score.metric, self.effect, remarks)


def _sentence(text: str) -> str:
    return f"N{text[1:]}" if text.startswith("no ") else text


def compare_table(
    table: pd.DataFrame,
    *,
    metric: str | None = None,
    length: int | None = None,
    validation: str | None = None,
    baseline: str | None = None,
    better: str | None = None,
    effect: float | None = None,
    all_pairs: bool = False,
    looks: int = 1,
    runs: Mapping[str, Run] | None = None,
) -> tuple[dict[str, Comparison], dict[str, list[str]]]:
    """Compare the groups of a checked table, each kind of data by itself, corrected as one page; return comparisons,
    and notes, by the name of the data.

    metric, length, validation: as in `score_of`, of the data that know them, as is the baseline, which `_baseline`
    reads. runs: by what is in column `folder`. Raises SettingError for what no data know, UserError without a finished
    run, and BadTable for columns that can't be settings.
    """
    wanted = {"metric": metric, "length": length, "validation": validation, "baseline": baseline}
    found: dict[str, Comparison] = {}
    refused: dict[str, list[SettingError]] = {}
    for name, rows in table.groupby("data", sort=False):
        found[str(name)], refused[str(name)] = _compare_data(rows, wanted, better, effect, all_pairs, runs or {})
    for name, value in wanted.items():
        errors = [error for of_data in refused.values() for error in of_data if error.option == name]
        if value is not None and len(errors) == len(found):
            raise errors[0]
    notes = {name: [f"{error}; what is usual takes its place" for error in of] for name, of in refused.items()}
    return dict(zip(found, as_one_page(list(found.values()), looks), strict=True)), notes


def _compare_data(
    rows: pd.DataFrame,
    wanted: Mapping[str, Any],
    better: str | None,
    effect: float | None,
    all_pairs: bool,
    runs: Mapping[str, Run],
) -> tuple[Comparison, list[SettingError]]:
    """Compare the rows of one kind of data. Settings in `wanted` that these data don't know take what is usual, and
    their errors are returned."""
    try:
        score = score_of(rows, wanted["metric"], wanted["length"], wanted["validation"], better)
        groups, planned = groups_of(rows, score, runs)
        return compare_groups(groups, planned, wanted["baseline"], effect, all_pairs, _caveats(rows, score)), []
    except SettingError as error:
        if wanted.get(error.option) is None:
            raise
        rest = {**wanted, error.option: None}
        comparison, errors = _compare_data(rows, rest, better, effect, all_pairs, runs)
        return comparison, [error, *errors]


def _caveats(rows: pd.DataFrame, score: Score) -> list[str]:
    compared = rows[rows["metric"] == score.name]
    return list(dict.fromkeys(line for cell in compared["caveat"] for line in cell.splitlines()))


def compare_groups(
    groups: Sequence[Group],
    planned: SeedPlan,
    baseline: str | None = None,
    effect: float | None = None,
    all_pairs: bool = False,
    caveats: Sequence[str] = (),
) -> Comparison:
    """Compare groups with the baseline, by default the first one, or all with each other; corrected by `as_one_page`.

    Raises UserError without groups.
    """
    if not groups:
        raise UserError("no finished run to compare, but for seeds that diverged as well")
    named_baseline, baseline = baseline, groups[0].label if baseline is None else _baseline(baseline, groups)
    ranked = sorted(groups, key=lambda group: group.rank)
    labels, figures = [group.label for group in ranked], {group.label: group.outcomes for group in ranked}
    pairs = list(combinations(labels, 2) if all_pairs else ((label, baseline) for label in labels if label != baseline))
    found = paired(
        {(first, second): (figures[first], figures[second]) for first, second in pairs},
        proportion=groups[0].score.metric.is_proportion,
        planned={pair: planned.of_pair(*pair) for pair in pairs},
        groups=planned.groups,
    )
    differences = _with(baseline, found)
    if planned.before and not (named_baseline or all_pairs):
        differences = without_claims(differences, without_baseline(planned.before))
    weak = [*caveats, *([looks_sentence(planned.earlier)] if planned.earlier else [])]
    comparison = Comparison(
        groups[0].score, ranked, baseline, differences, weak, planned, effect, found if all_pairs else {}
    )
    return replace(comparison, setting_effects=effects(comparison))


def as_one_page(comparisons: Sequence[Comparison], looks: int = 1) -> list[Comparison]:
    """Return the comparisons with all that they test, pairs and effects of settings, corrected as one family.

    looks: how often the figures were planned to be looked at; more if a plan grew after a look.
    """
    tests: list[Mapping[Any, Difference]] = []
    planned = []
    for one in comparisons:
        groups = one.planned.groups
        tests += [one.pairs or one.differences, dict(enumerate(of.difference for of in one.setting_effects))]
        planned += [math.comb(groups, 2) if one.pairs else groups - 1, 0]
    looks = max([looks, *(one.planned.looks for one in comparisons)])
    corrected = one_family(tests, planned, looks)
    found = []
    for one, by_pair, by_number in zip(comparisons, corrected[::2], corrected[1::2], strict=True):
        one = replace(
            one,
            differences=_with(one.baseline, by_pair) if one.pairs else by_pair,
            pairs=by_pair if one.pairs else {},
            setting_effects=[replace(of, difference=by_number[n]) for n, of in enumerate(one.setting_effects)],
            sections=len(comparisons),
            looks=looks,
        )
        found.append(one)
    return found


def _baseline(given: str, groups: Sequence[Group]) -> str:
    """Return the label given, or that of the first group with all the settings in it, "SCHEME max_distance=16".

    Raises SettingError if there is none.
    """
    labels = [group.label for group in groups]
    if given in labels:
        return given
    found = [group.label for group in groups if named(given, group.scheme, group.settings)]
    if not found:
        require_one_of(labels, baseline=given)
    return found[0]


def _with(baseline: str, pairs: Mapping[tuple[str, str], Difference]) -> dict[str, Difference]:
    """Return the differences from the baseline out of those of all pairs."""
    first = {pair[0]: found for pair, found in pairs.items() if pair[1] == baseline}
    return first | {pair[1]: found.reversed for pair, found in pairs.items() if pair[0] == baseline}
