"""Runs of the same data, in groups that differ in nothing but the seed, and what tells groups apart."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from poslab.comparison.provenance import Repeat
from poslab.comparison.scores import Score
from poslab.comparison.statistics import Estimate, estimate
from poslab.config.roles import NOT_COMPARED
from poslab.config.schemes import TARGET, parse_scheme, targets
from poslab.config.train import LATER, flat, role_of, usual_settings
from poslab.errors import SettingError, as_typed
from poslab.positions.base import knows_nothing
from poslab.runs.code import outside
from poslab.runs.load import Run


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed.

    distinguishing_settings: what may tell them from others of their scheme, as one would type it: `settings`, and the
    settings and facts that compared runs should have in common and don't. conflicting_repeats: seeds that came out in
    two ways, in words.
    """

    label: str
    runs: list[Run]
    score: Score
    distinguishing_settings: dict[str, str] = field(default_factory=dict)
    diverged: Sequence[Run] = ()
    conflicting_repeats: Sequence[str] = ()

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
    def outcomes(self) -> dict[int, float]:
        """The same, with the worst figure that there is for each seed that diverged."""
        return self.values | dict.fromkeys((run.seed for run in self.diverged), self.score.metric.sign * math.inf)

    @property
    def count(self) -> str:
        """How many seeds there are, "3 (1 diverged)"."""
        return f"{len(self.runs)} ({len(self.diverged)} diverged)" if self.diverged else str(len(self.runs))

    @property
    def estimate(self) -> Estimate:
        return estimate(self.values.values(), self.score.metric)

    @property
    def rank(self) -> tuple[float, float, float]:
        """Lower is better: by the share of seeds that diverged, by the mean of the others; of groups that are equally
        good, the one with the lower loss comes first."""
        diverged = len(self.diverged) / (len(self.diverged) + len(self.runs))
        return diverged, self.score.metric.sign * self.estimate.mean, float(np.mean([run.loss for run in self.runs]))

    @property
    def n_nondefault(self) -> int:
        """How many of its settings aren't those of configs/pos."""
        usual = usual_settings(self.scheme)
        return sum(key in usual and text != as_typed(usual[key]) for key, text in self.distinguishing_settings.items())

    @property
    def knows_nothing(self) -> bool:
        """Whether its scheme is known to know nothing of position; code from outside poslab isn't asked."""
        node = self.runs[0].config["pos"]
        try:
            return not outside(node) and knows_nothing(parse_scheme(node))
        except SettingError:  # another version's
            return False

    @property
    def median_run(self) -> Run:
        """The run of the median figure, whose pictures stand for its group."""
        return sorted(self.runs, key=lambda run: (self.score.of(run), run.loss))[(len(self.runs) - 1) // 2]

    def mean(self, key: str) -> float | None:
        """The mean of a number in the summaries; None where a run lacks it."""
        values = [getattr(run.summary, key) for run in self.runs]
        return None if any(not isinstance(v, int | float) for v in values) else float(np.mean(values))

    def at(self, length: int | None) -> str:
        """The mean of the metric at another length, as tables give it."""
        values = [run.value(self.score.metric.name, length, self.score.validation) for run in self.runs]
        known = [value for value in values if value is not None]
        return self.score.text(fmean(known) if len(known) == len(values) else None)


def same_tokens(first: Run, second: Run) -> bool:
    """Whether the two have the same tokens held out."""
    keys = ("data_sha256", "vocabulary_size", "validation_tokens", "test_tokens")
    return all(getattr(first.summary, key) == getattr(second.summary, key) for key in keys)


def group_runs(runs: Sequence[Run], conditions: list[str], score: Score) -> tuple[list[Group], list[Repeat]]:
    """Groups by all settings but the seed; of runs that repeat a seed, all but the first are left out. A group may be
    of runs that diverged alone."""
    sources: dict[tuple[Any, ...], set[str | None]] = defaultdict(set)
    for run in runs:
        sources[_classes(run)].add(run.summary.scheme_fingerprint)
    edited = {classes for classes, of_classes in sources.items() if len(of_classes) > 1}
    keyed: dict[tuple[Any, ...], dict[int, Run]] = defaultdict(dict)
    repeats = []
    for run in runs:
        of_seeds = keyed[(run.summary.pos, frozenset(_distinctions(run, conditions, edited).items()))]
        if run.seed in of_seeds:
            repeats.append(Repeat(of_seeds[run.seed], run))
        else:
            of_seeds[run.seed] = run
    groups = [[of_seeds[seed] for seed in sorted(of_seeds)] for of_seeds in keyed.values()]
    first_runs = [members[0] for members in groups]
    found = []
    for members in groups:
        finished, diverged = [run for run in members if not run.diverged], [run for run in members if run.diverged]
        told = _distinctions(members[0], conditions, edited)
        label = _label(members[0], first_runs, conditions, edited)
        conflicting_repeats = [
            repeat.differing_losses for repeat in repeats if repeat.differing_losses and repeat.first in members
        ]
        found.append(Group(label, finished, score, told, diverged, conflicting_repeats))
    return found, repeats


def _classes(run: Run) -> tuple[Any, ...]:
    return tuple(targets(run.config["pos"]))


def _label(run: Run, first_runs: list[Run], conditions: list[str], edited: Collection[tuple[Any, ...]]) -> str:
    """The scheme of the run's group, and of its settings those that tell it from other groups of that scheme."""
    settings = _distinctions(run, conditions, edited)
    same_name = (other for other in first_runs if other.summary.pos == run.summary.pos)
    namesakes = [_distinctions(other, conditions, edited) for other in same_name]

    def tells(key: str) -> bool:
        """Where schemes are settings, the settings of one tell nothing of another."""
        of = key.rpartition(".")[0] if key not in conditions else ""
        return any(other.get(key) != settings[key] for other in namesakes if other.get(of) == settings.get(of))

    return " ".join([run.summary.pos, *(f"{key}={value}" for key, value in settings.items() if tells(key))])


def _distinctions(run: Run, conditions: list[str], edited: Collection[tuple[Any, ...]]) -> dict[str, str]:
    """Values that tell groups of one scheme name apart: the scheme's settings, how it is trained, its class (two
    schemes may share a name), its source where its classes are `edited`, and the settings and facts in `conditions`."""
    settings = run.scheme_settings | {TARGET: run.config["pos"][TARGET]}
    if _classes(run) in edited:
        settings["source"] = run.summary.scheme_fingerprint or "unknown"
    shared = _shared_by_comparable_runs(run)
    return {str(key): _short(value) for key, value in settings.items()} | {
        key: _short(shared.get(key)) for key in conditions
    }


def differences_beyond_the_scheme(runs: Sequence[Run]) -> dict[str, str]:
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
    parts = ("train_tokens", "validation_tokens", "test_tokens")  # other versions may not have counted them
    facts += [name for name in parts if getattr(run.summary, name) is not None]
    facts += [] if settings.get("early_stopping_patience") else ["steps"]
    # Validation once left out the tokens of a last, shorter window, and the summary then says nothing of this.
    measured = run.summary.val_loss_tokens or "without the text's last ones"
    held_out = "none" if run.summary.test_loss is None else "measured"  # or losses of a test would meet validations'
    found = settings | {key: getattr(run.summary, key) for key in facts}
    return found | {"val_loss_tokens": measured, "test_loss": held_out}


def _short(value: Any) -> str:
    text = as_typed(value)
    return f"{text[:12]}..." if len(text) == 64 else text  # a sha256


def by_data(runs: Sequence[Run], together: bool = False) -> dict[str, list[Run]]:
    """The runs of each task or text by themselves, under a title: "recall", "recall pairs=8". together: whether those
    of one name are never told apart."""
    keyed: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        data, encoding = run.summary.data, run.config["data"].get("encoding")
        keyed[(data,) if together else (data, run.summary.data_sha256, encoding)].append(run)
    firsts = [members[0] for members in keyed.values()]
    return {_title(members[0], firsts): members for members in keyed.values()}


def _title(run: Run, firsts: Sequence[Run]) -> str:
    """The data's name, and what tells them from others of that name."""
    own = _data_settings(run)
    others = [_data_settings(other) for other in firsts if other is not run and other.summary.data == run.summary.data]
    told = [f"{key}={value}" for key, value in own.items() if any(other.get(key) != value for other in others)]
    sha256 = [f"sha256={run.summary.data_sha256[:12]}"] if own in others else []
    return " ".join([run.summary.data, *told, *sha256])


def _data_settings(run: Run) -> dict[str, Any]:
    settings = flat({"data": run.config["data"]}, without=NOT_COMPARED)
    return {key.removeprefix("data."): value for key, value in settings.items()}
