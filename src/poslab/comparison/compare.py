"""Comparison of groups of runs that differ only in their position scheme, in figures and sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from poslab.comparison.convergence import convergence_warning
from poslab.comparison.factors import Effect, effects
from poslab.comparison.groups import Group, differences_beyond_the_scheme, group_runs, same_tokens
from poslab.comparison.missing_seeds import unsettled
from poslab.comparison.provenance import caveats
from poslab.comparison.scores import Score, score_of, scored
from poslab.comparison.sentences import sentence, token_sentence
from poslab.config.contrasts import named
from poslab.config.schemes import default_scheme
from poslab.errors import SettingError, UserError, require_one_of
from poslab.runs.evaluation import Evaluation
from poslab.runs.load import LeftOut, Run
from poslab.runs.plan import Planned, PlannedGroup, comparable, planned_seeds
from poslab.statistics.families import one_family
from poslab.statistics.paired import Difference, Estimate, paired
from poslab.statistics.text import token_difference


@dataclass(frozen=True)
class Comparison:
    """Groups of runs on the same data from the best to the worst, by `score`, and how each differs from the baseline.

    caveats: differences between the runs, other than the scheme, that weaken the answers. planned: the seeds that were
    planned. effect: the difference that matters, if named. pairs: for each pair, in the order of the groups, first
    minus second, if all pairs were tested; `differences` are then those with the baseline. effects: of settings.
    """

    score: Score
    groups: list[Group]
    baseline: str
    differences: Mapping[str, Difference]
    caveats: list[str]
    left_out: list[LeftOut]
    planned: Planned
    effect: float | None = None
    pairs: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    effects: Sequence[Effect] = ()

    @cached_property
    def answers(self) -> dict[str, str]:
        """Return by label a sentence that compares a group with the baseline."""
        return _answers(self.groups, self.baseline, self.differences, self.effect)

    @cached_property
    def further(self) -> list[str]:
        """Return sentences on other pairs, and on groups without a finished run."""
        only = (
            f"only {self.baseline} is here (n = {len(self.groups[0].values)}), so there is nothing to compare it with"
        )
        alone = [] if self.answers else [only]
        return [*alone, *_of_other_pairs(self.groups, self.baseline, self.pairs), *self.planned.sentences]

    @property
    def comparisons(self) -> int:
        """Return the number of comparisons of the page, by which p-values and intervals are corrected."""
        return max((d.comparisons for d in self.differences.values()), default=1)

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def sentences(self) -> list[str]:
        return [*self.answers.values(), *self.further]

    @property
    def by_scheme(self) -> dict[str, list[Group]]:
        """Return the groups of each scheme, schemes in alphabetical order."""
        names = sorted({group.scheme for group in self.groups})
        return {name: [group for group in self.groups if group.scheme == name] for name in names}


def compare_alone(
    runs: Sequence[Run],
    left_out: Sequence[LeftOut] = (),
    *,
    metric: str | None = None,
    length: int | None = None,
    validation: str | None = None,
    baseline: str | None = None,
    effect: float | None = None,
    allow_differences: bool = False,
    all_pairs: bool = False,
    plan: Sequence[PlannedGroup] = (),
) -> Comparison:
    """Group the runs and compare each group with the baseline, or all with each other, p-values and intervals those of
    one comparison (`as_one_page`).

    The score is the one that `metric`, `length` and `validation` name, or the usual one; runs without it are left out.
    baseline: as `_baseline` reads it. plan: that of the sweeps of these runs.

    Raises UserError without runs, and for runs that differ in more than the scheme, unless `allow_differences`.
    """
    runs, diverged = [run for run in runs if not run.diverged], [run for run in runs if run.diverged]
    if not runs:
        raise UserError("no finished run to compare")
    score = score_of(runs, metric, length, validation)
    runs, without = scored(runs, score)
    if not runs:
        raise UserError(f"no run has a {score.title}")
    other_differences = differences_beyond_the_scheme(runs)
    if other_differences and not allow_differences:
        listed = "; ".join(f"{key}: {values}" for key, values in other_differences.items())
        raise UserError(
            f"the runs differ in more than the scheme, so the scheme can't be said to cause a difference in "
            f"{score.metric.name}: {listed}; compare fewer runs, or set allow_differences=true"
        )
    diverged, foreign = comparable(diverged, runs)
    by_label, groups, repeats = group_runs([*diverged, *runs], list(other_differences), score)
    planned = planned_seeds(by_label, plan)
    if not groups:
        raise UserError("no finished run to compare, but for seeds that diverged as well")
    weakened = [repeat.caveat for repeat in repeats if repeat.caveat]
    weakened += [f"{key} differs: {values}" for key, values in other_differences.items()] + caveats(runs, score)
    repeated = [LeftOut(repeat.run.folder, repeat.reason) for repeat in repeats]
    ended = [LeftOut(run.folder, run.diverged) for run in diverged]
    out = [*left_out, *without, *foreign, *ended, *repeated]
    return compare_groups(groups, planned, baseline, effect, all_pairs, weakened, out)


def compare_groups(
    groups: Sequence[Group],
    planned: Planned,
    baseline: str | None = None,
    effect: float | None = None,
    all_pairs: bool = False,
    caveats: Sequence[str] = (),
    left_out: Sequence[LeftOut] = (),
) -> Comparison:
    """Compare groups, at least one, with the baseline, or all with each other, by themselves (`as_one_page`)."""
    groups = sorted(groups, key=lambda group: group.rank)
    named_baseline, baseline = baseline, _natural_baseline(groups) if baseline is None else _baseline(baseline, groups)
    labels = [group.label for group in groups]
    tested = combinations(labels, 2) if all_pairs else ((label, baseline) for label in labels if label != baseline)
    found = _differences(groups, list(tested), planned)
    by_label = _with(baseline, found)
    if not (named_baseline or all_pairs):
        by_label = unsettled(by_label, planned, baseline, default_scheme())
    pairs = found if all_pairs else {}
    score, weakened = groups[0].score, [*caveats, *planned.caveats]
    comparison = Comparison(score, groups, baseline, by_label, weakened, list(left_out), planned, effect, pairs)
    return replace(comparison, effects=effects(comparison))


def as_one_page(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with all that they test, pairs and effects of settings, corrected as one family."""
    tests: list[Mapping[Any, Difference]] = []
    planned = []
    for one in comparisons:
        groups = one.planned.groups
        tests += [one.pairs or one.differences, {number: of.difference for number, of in enumerate(one.effects)}]
        planned += [math.comb(groups, 2) if one.pairs else groups - 1, 0]
    corrected = one_family(tests, planned)
    found = []
    for one, by_pair, by_number in zip(comparisons, corrected[::2], corrected[1::2], strict=True):
        effects_of_settings = [replace(of, difference=by_number[number]) for number, of in enumerate(one.effects)]
        by_label = _with(one.baseline, by_pair) if one.pairs else by_pair
        pairs = by_pair if one.pairs else {}
        found.append(replace(one, differences=by_label, pairs=pairs, effects=effects_of_settings))
    return found


def compare(runs: Sequence[Run], left_out: Sequence[LeftOut] = (), **settings: Any) -> Comparison:
    """Compare the runs as the only ones of a page; see `compare_alone`."""
    (comparison,) = as_one_page([compare_alone(runs, left_out, **settings)])
    return comparison


def _natural_baseline(groups: Sequence[Group]) -> str:
    """Return the label of the default baseline.

    It is the default scheme of train.py, else one without positions, else the first by name; of its groups the one with
    the fewest settings away from their defaults.
    """
    default = default_scheme()
    ranked = {(g.scheme != default, not g.knows_nothing, g.scheme, g.n_nondefault, g.label): g.label for g in groups}
    return ranked[min(ranked)]


def _baseline(given: str, groups: Sequence[Group]) -> str:
    """Return the label given, or that of the only group with all the settings in it, "SCHEME max_distance=16".

    Among several, the one with the fewest other settings away from their defaults. Raises SettingError if there is
    none, or several alike.
    """
    labels = [group.label for group in groups]
    found = (
        []
        if given in labels
        else [group for group in groups if named(given, group.scheme, group.distinguishing_settings)]
    )
    if not found:
        require_one_of(labels, baseline=given)
        return given
    most_usual = [group.label for group in found if group.n_nondefault == min(g.n_nondefault for g in found)]
    if len(most_usual) > 1:
        raise SettingError("baseline", given, f"is several groups: {'; '.join(most_usual)}")
    return most_usual[0]


def _differences(
    groups: Sequence[Group], pairs: Sequence[tuple[str, str]], planned: Planned
) -> dict[tuple[str, str], Difference]:
    figures = {group.label: group.outcomes for group in groups}
    return paired(
        {(first, second): (figures[first], figures[second]) for first, second in pairs},
        proportion=groups[0].score.metric.is_proportion,
        planned={pair: planned.of_pair(*pair) for pair in pairs},
        groups=planned.groups,
    )


def _with(baseline: str, pairs: Mapping[tuple[str, str], Difference]) -> dict[str, Difference]:
    """Return the differences from the baseline out of those of all pairs."""
    first = {pair[0]: found for pair, found in pairs.items() if pair[1] == baseline}
    return first | {pair[1]: found.reversed for pair, found in pairs.items() if pair[0] == baseline}


def token_sentences(comparison: Comparison, evaluations: Mapping[Path, Evaluation]) -> list[str]:
    """Compare single runs by their losses on the same held-out tokens; evaluations are by the folder of the run.

    Groups of several seeds need no such sentence: `differences` says more.
    """
    alone = {group.label: group.runs[0] for group in comparison.groups if len(group.runs) == 1}
    measured = {label: run for label, run in alone.items() if run.folder in evaluations}
    baseline_run = measured.pop(comparison.baseline, None)
    if baseline_run is None:
        return []
    sentences: list[str | None] = []
    for label, run in measured.items():
        pair = [evaluations[of.folder] for of in (run, baseline_run)]
        losses = [evaluation.consecutive_losses for evaluation in pair]
        if same_tokens(run, baseline_run) and 0 < len(losses[0]) == len(losses[1]) and np.isfinite(losses).all():
            part = "validation" if run.summary.test_tokens is None else "test"
            found = token_difference(*losses, comparisons=len(measured))
            by_run = comparison.differences[label].mean or 0.0
            if found.interval and found.interval.low * found.interval.high > 0 > found.mean * by_run:
                sentences.append(_two_directions(label, comparison, found, part))
            else:
                sentences.append(token_sentence(label, comparison.baseline, found, part))
    return [text for text in sentences if text is not None]


def _two_directions(label: str, comparison: Comparison, by_token: Estimate, part: str) -> str:
    """Return a sentence for two runs whose figures and token losses disagree: neither is called better."""
    whose = f"the checkpoints of {label} and {comparison.baseline}"
    other = f"differ in the other direction than by the {comparison.score.title} ({by_token.mean:+.3f} nats)"
    return f"on the {by_token.n:,} {part} tokens {whose} {other}: these two runs can't be told apart"


def _answers(
    groups: Sequence[Group], baseline: str, by_label: Mapping[str, Difference], effect: float | None
) -> dict[str, str]:
    (of_baseline,) = (group for group in groups if group.label == baseline)
    others = {group.label: group for group in groups if group is not of_baseline}
    texts = {label: _sentence((group, of_baseline), by_label[label], effect) for label, group in others.items()}
    return {label: f"N{text[1:]}" if text.startswith("no ") else text for label, text in texts.items()}


def _of_other_pairs(groups: Sequence[Group], baseline: str, by_pair: Mapping[tuple[str, str], Difference]) -> list[str]:
    """Return sentences on the pairs without the baseline that differ significantly, the better group first, and their
    count."""
    by_label = {group.label: group for group in groups}
    texts = []
    for (first, second), found in by_pair.items():
        if baseline not in (first, second) and found.significant:
            pair = by_label[first], by_label[second]
            better = found.leaning * groups[0].score.metric.sign < 0
            texts.append(_sentence(pair if better else pair[::-1], found if better else found.reversed))
    shown = sum(found.significant for found in by_pair.values())
    summary = [f"of all {len(by_pair)} pairs {shown} are shown to differ"] if len(by_pair) > 1 else []
    return [*texts, *summary]


def _sentence(pair: tuple[Group, Group], difference: Difference, effect: float | None = None) -> str:
    """Return a sentence on the first of two groups compared with the second, with what weakens it."""
    runs, means = {g.label: g.runs for g in pair}, {g.label: g.estimate.mean for g in pair}
    score = pair[0].score
    said = sentence(pair[0].label, pair[1].label, difference, effect, score.metric)
    conflicting_repeats = "".join(f"; but {words}" for group in pair for words in group.conflicting_repeats)
    return said + score.remark + conflicting_repeats + convergence_warning(runs, means, difference, score)
