"""Runs in groups that differ in their position scheme alone, and what can be said of them."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poslab.comparison.statistics import Difference, Estimate, differences, estimate, sentence, token_difference
from poslab.errors import UserError, as_typed, one_of
from poslab.evaluation.losses import Evaluation
from poslab.runs.finished import LeftOut, Run
from poslab.settings.roles import NOT_COMPARED
from poslab.settings.train import flat


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: list[Run]

    @property
    def losses(self) -> dict[int, float]:
        return {run.seed: run.loss for run in self.runs}

    @property
    def loss(self) -> Estimate:
        return estimate(self.losses.values())

    @property
    def median_run(self) -> Run:
        """The run whose pictures stand for its group: that of the median loss."""
        return sorted(self.runs, key=lambda run: run.loss)[(len(self.runs) - 1) // 2]

    def mean(self, key: str) -> float | None:
        """Of a number in the summaries; None where a run lacks it."""
        values = [run.summary.get(key) for run in self.runs]
        return None if any(not isinstance(v, int | float) for v in values) else float(np.mean(values))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Comparison:
    """Groups in order of their loss, against one of them."""

    groups: list[Group]
    baseline: str
    differences: dict[str, Difference]
    sentences: list[str]
    notes: list[str]
    left_out: list[LeftOut]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]


def compare(
    runs: Sequence[Run],
    left_out: Sequence[LeftOut] = (),
    *,
    baseline: str | None = None,
    effect: float = 0.02,
    allow_differences: bool = False,
) -> Comparison:
    """Groups the runs and judges each group against the baseline (absolute, or else the first by name).

    Raises UserError without runs, and for runs that differ in more than the scheme, unless `allow_differences`.
    """
    if not runs:
        raise UserError("no finished run to compare")
    different = _differences_beyond_the_scheme(runs)
    if different and not allow_differences:
        listed = "; ".join(f"{key}: {values}" for key, values in different.items())
        raise UserError(f"the runs differ in more than the scheme, so none of it could be told apart: {listed}; "
                        "compare fewer, or say allow_differences=true")  # fmt: skip
    groups, repeated = _group(runs, list(different))
    labels = [group.label for group in groups]
    if baseline is None:
        baseline = "absolute" if "absolute" in labels else min(labels)
    one_of(labels, baseline=baseline)
    groups.sort(key=lambda group: group.loss.mean)
    found = differences({group.label: group.losses for group in groups}, baseline)
    sentences = _answer(groups, baseline, found, effect)
    notes = [f"{key} differs: {values}" for key, values in different.items()] + _notes(runs)
    return Comparison(groups, baseline, found, sentences, notes, [*left_out, *repeated])


def token_sentences(comparison: Comparison, evaluations: dict[str, Evaluation]) -> list[str]:
    """For pairs of single runs: what their losses on the same tokens say of these two checkpoints.

    evaluations: by folder of the run.
    """
    singles = {group.label: group.runs[0] for group in comparison.groups if len(group.runs) == 1}
    base_run = singles.get(comparison.baseline)
    base = evaluations.get(str(base_run.folder)) if base_run else None
    sentences = []
    for label, run in singles.items():
        own = evaluations.get(str(run.folder))
        if base_run is None or base is None or own is None or run is base_run:
            continue
        if _text(run) != _text(base_run) or not _comparable(own.token_losses, base.token_losses):
            continue
        found = token_difference(own.token_losses, base.token_losses)
        if found.low is None or found.high is None:
            continue
        word = "better" if found.mean < 0 else "worse"
        low, high = sorted((abs(found.low), abs(found.high)))
        if found.low <= 0 <= found.high:
            said = f"can't be told apart: {found.mean:+.3f} nats [{found.low:+.3f}, {found.high:+.3f}]"
        else:
            said = f"differ: {label}'s is {word} by {abs(found.mean):.3f} nats [{low:.3f}, {high:.3f}]"
        sentences.append(
            f"on the {found.n:,} validation tokens, the checkpoints of {label} and {comparison.baseline} {said}; "
            "another seed may turn this round"
        )
    return sentences


def _text(run: Run) -> tuple[Any, Any]:
    """Runs that are alike in this have the same validation tokens."""
    return run.summary["data_sha256"], run.summary.get("vocabulary_size")


def _comparable(first: list[float], second: list[float]) -> bool:
    return 0 < len(first) == len(second) and bool(np.isfinite([first, second]).all())


def _answer(groups: list[Group], baseline: str, found: dict[str, Difference], effect: float) -> list[str]:
    if len(groups) == 1:
        only = groups[0]
        return [f"only {only.label} is here (n = {len(only.runs)}), so there is nothing to compare it with"]
    said = [sentence(group.label, baseline, found[group.label], effect) for group in groups if group.label != baseline]
    return [text[0].upper() + text[1:] if text.startswith("no ") else text for text in said]


def _group(runs: Sequence[Run], beyond: list[str]) -> tuple[list[Group], list[LeftOut]]:
    """Groups by all settings but the seed; of runs that repeat a seed, all but the first are left out."""
    keyed: dict[tuple[Any, ...], dict[int, Run]] = defaultdict(dict)
    repeated = []
    for run in runs:
        key = (run.pos, frozenset(_words(run, beyond).items()))
        if run.seed in keyed[key]:
            first = keyed[key][run.seed].folder
            repeated.append(LeftOut(run.folder, f"repeats seed {run.seed} of {first}, with the same settings"))
        else:
            keyed[key][run.seed] = run
    members = [[found[seed] for seed in sorted(found)] for found in keyed.values()]
    return [Group(_label(own, members, beyond), own) for own in members], repeated


def _label(own: list[Run], members: list[list[Run]], beyond: list[str]) -> str:
    """The scheme, and of its settings those that tell it from the other groups of that scheme."""
    words = _words(own[0], beyond)
    alike = [_words(other[0], beyond) for other in members if other[0].pos == own[0].pos]
    parts = [f"{key}={value}" for key, value in words.items() if any(other.get(key) != value for other in alike)]
    return " ".join([own[0].pos, *parts])


def _words(run: Run, beyond: list[str]) -> dict[str, str]:
    """What tells groups apart, beside the scheme's name: its settings, its class (two schemes may have the same name),
    and what else is in `beyond`."""
    settings = run.summary["pos_settings"] | {"_target_": run.config["pos"]["_target_"]}
    rest = _rest(run)
    return {str(key): _short(value) for key, value in settings.items()} | {key: _short(rest.get(key)) for key in beyond}


def _differences_beyond_the_scheme(runs: Sequence[Run]) -> dict[str, str]:
    """Settings and facts, other than the scheme's, of which the runs have several values: name -> values in words."""
    rests = [_rest(run) for run in runs]
    different = {}
    for key in dict.fromkeys(key for rest in rests for key in rest):
        values: dict[str, str] = {}
        for run, rest in zip(runs, rests, strict=True):
            if key in rest:  # another version may not have known it, and a summary doesn't tell all
                values.setdefault(_short(rest[key]), run.name)
        if len(values) > 1:
            different[key] = ", ".join(f"{value} (as in {name})" for value, name in values.items())
    return different


def _rest(run: Run) -> dict[str, Any]:
    """Everything that must be the same for two runs to differ in their scheme alone, flat."""
    settings = {"data.vocabulary": "full"} | flat(run.config, without=NOT_COMPARED)
    facts = ["data_sha256", "params_trunk", "vocabulary_size"]
    facts += [] if settings.get("early_stopping_patience") else ["steps"]
    # Validation once left out the tokens of a last, shorter window, and the summary then says nothing of this.
    measured = run.summary.get("val_loss_tokens") or "without the text's last ones"
    return settings | {key: run.summary.get(key) for key in facts} | {"val_loss_tokens": measured}


def _notes(runs: Sequence[Run]) -> list[str]:
    """What differs without being a setting, and how it weakens the comparison."""
    rounding = "times can't be compared, and losses differ by rounding"
    facts: list[tuple[str, Callable[[Run], Any], str]] = [
        ("versions of poslab", lambda run: run.summary["versions"].get("poslab"), "they may compute different things"),
        ("versions of torch", lambda run: run.summary["versions"].get("torch"), rounding),
        ("devices", lambda run: run.summary.get("device"), rounding),
        ("numbers of threads", lambda run: run.summary.get("threads"), rounding),
    ]
    unknown = [
        f"{run.folder} has no config.yaml; only what its summary says is compared" for run in runs if not run.has_config
    ]
    found = [(what, sorted({str(value(run)) for run in runs}), so) for what, value, so in facts]
    return unknown + [f"several {what}: {', '.join(values)}; {so}" for what, values, so in found if len(values) > 1]


def _short(value: Any) -> str:
    text = as_typed(value)
    return f"{text[:12]}..." if len(text) == 64 else text  # a sha256
