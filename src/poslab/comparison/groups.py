"""Runs in groups that differ in their position scheme alone, and the answers that their figures give."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poslab.comparison.maturity import caution
from poslab.comparison.scores import Score, score_of, scored
from poslab.comparison.statistics import (
    Difference,
    Estimate,
    differences,
    estimate,
    sentence,
    token_difference,
    token_sentence,
)
from poslab.errors import UserError, as_typed
from poslab.runs.code import outside
from poslab.runs.evaluation import Evaluation
from poslab.runs.finished import LeftOut, Run
from poslab.settings.roles import NOT_COMPARED
from poslab.settings.schemes import TARGET, default_scheme, targets
from poslab.settings.train import LATER, flat, role_of


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: list[Run]
    score: Score

    @property
    def scheme(self) -> str:
        return self.runs[0].summary.pos

    @property
    def settings(self) -> dict[str, Any]:
        """Of the scheme, and of how it is trained."""
        return self.runs[0].scheme_settings

    @property
    def values(self) -> dict[int, float]:
        """The figure of each seed."""
        return {run.seed: self.score.of(run) for run in self.runs}

    @property
    def estimate(self) -> Estimate:
        return estimate(self.values.values(), self.score.metric)

    @property
    def rank(self) -> tuple[float, float]:
        """Lower is better; of groups that are equally good, the one with the lower loss."""
        return self.score.metric.sign * self.estimate.mean, float(np.mean([run.loss for run in self.runs]))

    @property
    def median_run(self) -> Run:
        """The run of the median figure, whose pictures stand for its group."""
        return sorted(self.runs, key=lambda run: (self.score.of(run), run.loss))[(len(self.runs) - 1) // 2]

    def mean(self, key: str) -> float | None:
        """The mean of a number in the summaries; None where a run lacks it."""
        values = [getattr(run.summary, key) for run in self.runs]
        return None if any(not isinstance(v, int | float) for v in values) else float(np.mean(values))


@dataclass(frozen=True)
class Comparison:
    """Groups of runs on the same data from the best to the worst, by `score`, and how each differs from the baseline.

    sentences: the answers in words. caveats: differences between the runs, other than the scheme, that weaken them.
    """

    score: Score
    groups: list[Group]
    baseline: str
    differences: dict[str, Difference]
    sentences: list[str]
    caveats: list[str]
    left_out: list[LeftOut]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]


def compare(
    runs: Sequence[Run],
    left_out: Sequence[LeftOut] = (),
    *,
    metric: str | None = None,
    length: int | None = None,
    validation: str | None = None,
    baseline: str | None = None,
    effect: float | None = None,
    allow_differences: bool = False,
) -> Comparison:
    """Groups the runs and compares each group with the baseline (`default_scheme`, or else the first by name), by the
    score that `metric`, `length` and `validation` name, or the usual one. Runs that lack it are left out.

    Raises UserError without runs, and for runs that differ in more than the scheme, unless `allow_differences`.
    """
    if not runs:
        raise UserError("no finished run to compare")
    score = score_of(runs, metric, length, validation)
    runs, without = scored(runs, score)
    if not runs:
        raise UserError(f"no run has a {score.title}")
    other_differences = _differences_beyond_the_scheme(runs)
    if other_differences and not allow_differences:
        listed = "; ".join(f"{key}: {values}" for key, values in other_differences.items())
        raise UserError(
            f"the runs differ in more than the scheme, so the scheme can't be said to cause a difference in "
            f"{score.metric.name}: {listed}; compare fewer runs, or set allow_differences=true"
        )
    groups, repeated = _group(runs, list(other_differences), score)
    labels = [group.label for group in groups]
    if baseline is None:
        baseline = default_scheme() if default_scheme() in labels else min(labels)
    groups.sort(key=lambda group: group.rank)
    by_label = differences({group.label: group.values for group in groups}, baseline, score.metric)
    caveats = [f"{key} differs: {values}" for key, values in other_differences.items()] + _caveats(runs, score)
    sentences = _sentences(groups, baseline, by_label, effect)
    return Comparison(score, groups, baseline, by_label, sentences, caveats, [*left_out, *without, *repeated])


def token_sentences(comparison: Comparison, evaluations: Mapping[Path, Evaluation]) -> list[str]:
    """Compares single runs by their losses on the same tokens held out; evaluations are by the folder of the run.

    Groups of several seeds need no such sentence: `differences` says more.
    """
    alone = {group.label: group.runs[0] for group in comparison.groups if len(group.runs) == 1}
    measured = {label: run for label, run in alone.items() if run.folder in evaluations}
    baseline_run = measured.pop(comparison.baseline, None)
    if baseline_run is None:
        return []
    sentences = []
    for label, run in measured.items():
        losses = [evaluations[of.folder].token_losses for of in (run, baseline_run)]
        if same_tokens(run, baseline_run) and 0 < len(losses[0]) == len(losses[1]) and np.isfinite(losses).all():
            part = "validation" if run.summary.test_tokens is None else "test"
            sentences.append(token_sentence(label, comparison.baseline, token_difference(*losses), part))
    return [text for text in sentences if text is not None]


def same_tokens(first: Run, second: Run) -> bool:
    """Whether the two have the same tokens held out."""
    keys = ("data_sha256", "vocabulary_size", "validation_tokens", "test_tokens")
    return all(getattr(first.summary, key) == getattr(second.summary, key) for key in keys)


def _sentences(
    groups: list[Group], baseline: str, by_label: Mapping[str, Difference], effect: float | None
) -> list[str]:
    if len(groups) == 1:
        only = groups[0]
        return [f"only {only.label} is here (n = {len(only.runs)}), so there is nothing to compare it with"]
    (of_baseline,) = (group for group in groups if group.label == baseline)
    texts = []
    for group in groups:
        if group.label != baseline:
            difference, pair = by_label[group.label], (group, of_baseline)
            runs, means = {g.label: g.runs for g in pair}, {g.label: g.estimate.mean for g in pair}
            score = group.score
            said = sentence(group.label, baseline, difference, effect, score.metric)
            texts.append(said + score.remark + caution(runs, means, difference, score))
    return [text[0].upper() + text[1:] if text.startswith("no ") else text for text in texts]


def _group(runs: Sequence[Run], conditions: list[str], score: Score) -> tuple[list[Group], list[LeftOut]]:
    """Groups by all settings but the seed; of runs that repeat a seed, all but the first are left out."""
    keyed: dict[tuple[Any, ...], dict[int, Run]] = defaultdict(dict)
    repeated = []
    for run in runs:
        of_seeds = keyed[(run.summary.pos, frozenset(_distinctions(run, conditions).items()))]
        if run.seed in of_seeds:
            reason = f"repeats seed {run.seed} of {of_seeds[run.seed].folder}, with the same settings"
            repeated.append(LeftOut(run.folder, reason))
        else:
            of_seeds[run.seed] = run
    groups = [[of_seeds[seed] for seed in sorted(of_seeds)] for of_seeds in keyed.values()]
    first_runs = [members[0] for members in groups]
    return [Group(_label(members[0], first_runs, conditions), members, score) for members in groups], repeated


def _label(run: Run, first_runs: list[Run], conditions: list[str]) -> str:
    """The scheme of the run's group, and of its settings those that tell it from other groups of that scheme."""
    settings = _distinctions(run, conditions)
    namesakes = [_distinctions(other, conditions) for other in first_runs if other.summary.pos == run.summary.pos]

    def tells(key: str) -> bool:
        """Where schemes are settings, the settings of one tell nothing of another."""
        of = key.rpartition(".")[0] if key not in conditions else ""
        return any(other.get(key) != settings[key] for other in namesakes if other.get(of) == settings.get(of))

    return " ".join([run.summary.pos, *(f"{key}={value}" for key, value in settings.items() if tells(key))])


def _distinctions(run: Run, conditions: list[str]) -> dict[str, str]:
    """Values that tell groups of one scheme name apart: the scheme's settings, how it is trained, its class (two
    schemes may share a name), its source if it is from outside poslab, and the settings and facts in `conditions`."""
    node = {TARGET: run.config["pos"][TARGET]} | run.summary.pos_settings
    settings = run.scheme_settings | {TARGET: node[TARGET]}
    if outside(node):
        settings["source"] = run.summary.scheme_fingerprint or "unknown"
    shared = _shared_by_comparable_runs(run)
    return {str(key): _short(value) for key, value in settings.items()} | {
        key: _short(shared.get(key)) for key in conditions
    }


def _differences_beyond_the_scheme(runs: Sequence[Run]) -> dict[str, str]:
    """Settings and facts, other than the scheme's, of which the runs have several values: name -> values in words."""
    different = {}
    all_shared = [_shared_by_comparable_runs(run) for run in runs]
    for key in dict.fromkeys(key for shared in all_shared for key in shared):
        values: dict[str, str] = {}
        for run, shared in zip(runs, all_shared, strict=True):
            if key in shared:  # another version may not have known it
                values.setdefault(_short(shared[key]), run.folder.name)
        if len(values) > 1:
            different[key] = ", ".join(f"{value} (as in {name})" for value, name in values.items())
    return different


def _shared_by_comparable_runs(run: Run) -> dict[str, Any]:
    """Settings and facts that must be equal for two runs to differ in their scheme alone, flat."""
    later = {name: value for name, value in LATER.items() if role_of(name) not in NOT_COMPARED}
    settings = {"data.vocabulary": "full"} | later | flat(run.config, without=NOT_COMPARED)
    facts = ["data_sha256", "params_trunk", "vocabulary_size"]
    facts += [] if settings.get("early_stopping_patience") else ["steps"]
    # Validation once left out the tokens of a last, shorter window, and the summary then says nothing of this.
    measured = run.summary.val_loss_tokens or "without the text's last ones"
    return settings | {key: getattr(run.summary, key) for key in facts} | {"val_loss_tokens": measured}


def _caveats(runs: Sequence[Run], score: Score) -> list[str]:
    """Facts, not settings, of which the runs have several values, and how that weakens the answers."""
    other_code = "they may compute different things"
    rounding = "times can't be compared, and losses differ by rounding"
    facts: list[tuple[str, Callable[[Run], Any], str]] = [
        ("versions of poslab", lambda run: run.summary.versions.get("poslab"), other_code),
        ("versions of poslab's code", lambda run: run.summary.code_fingerprint, other_code),
        ("versions of torch", lambda run: run.summary.versions.get("torch"), rounding),
        ("devices", lambda run: run.summary.device, rounding),
        ("numbers of threads", lambda run: run.summary.threads, rounding),
    ]
    caveats = _of_validation(runs) if score.validation else []
    for fact, value_of, consequence in facts:
        caveats += _several(fact, map(value_of, runs), consequence)
    by_classes: dict[tuple[Any, ...], list[str | None]] = defaultdict(list)
    for run in runs:
        by_classes[tuple(targets(run.config["pos"]))].append(run.summary.scheme_fingerprint)
    for names, of_scheme in by_classes.items():
        caveats += _several(f"versions of the code of {' with '.join(map(str, names))}", of_scheme, other_code)
    return caveats


def _of_validation(runs: Sequence[Run]) -> list[str]:
    """What weakens losses of the validation, where it is also what training was stopped by, or came too early."""
    caveats = []
    if any(run.config.get("early_stopping_patience") for run in runs):
        caveats.append("early stopping: when to stop was chosen on the validation data that are compared")
    early = [run for run in runs if (run.summary.last_val_step or run.summary.steps) < run.summary.steps]
    if early:
        steps = f"step {early[0].summary.last_val_step} of {early[0].summary.steps}"
        caveats.append(f"the last validation of {len(early)} runs was before their last step ({steps})")
    return caveats


def _several(fact: str, values: Iterable[Any], consequence: str) -> list[str]:
    """A caveat where there are several values; one that no summary has is unknown."""
    different = sorted({"unknown" if value is None else str(value) for value in values})
    return [f"several {fact}: {', '.join(different)}; {consequence}"] if len(different) > 1 else []


def _short(value: Any) -> str:
    text = as_typed(value)
    return f"{text[:12]}..." if len(text) == 64 else text  # a sha256
