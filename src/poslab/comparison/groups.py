"""Runs of the same data, in groups that differ in nothing but the seed, and what tells groups apart."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from poslab.comparison.provenance import Repeat
from poslab.comparison.scores import Score
from poslab.config.fields import NOT_COMPARED
from poslab.config.schemes import TARGET, distinguishing, parse_scheme, targets
from poslab.config.train import default_settings, flat
from poslab.errors import SettingError, as_typed
from poslab.positions.base import knows_nothing
from poslab.runs.code import outside
from poslab.runs.load import Run
from poslab.statistics.paired import Estimate, estimate


@dataclass(frozen=True)
class Group:
    """Figures of runs that differ in nothing but the seed.

    values: the figure of each finished seed. diverged: seeds of runs that did. settings: of the scheme and of its
    training. distinguishing_settings: settings that may distinguish the group from others of its scheme, as typed:
    `settings`, and the settings and facts that compared runs should have in common and do not. conflicting_repeats:
    seeds with two different results, in words. runs: the finished runs; none if the figures are of a table.
    """

    label: str
    scheme: str
    score: Score
    values: dict[int, float]
    diverged: Sequence[int] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    distinguishing_settings: dict[str, str] = field(default_factory=dict)
    conflicting_repeats: Sequence[str] = ()
    runs: Sequence[Run] = ()

    @property
    def outcomes(self) -> dict[int, float]:
        """Return the figure of each seed, the worst possible one for those that diverged."""
        return self.values | dict.fromkeys(self.diverged, self.score.metric.sign * math.inf)

    @property
    def count(self) -> str:
        """Return the number of seeds in words, "3 (1 diverged)"."""
        finished = str(len(self.values))
        return f"{finished} ({len(self.diverged)} diverged)" if self.diverged else finished

    @property
    def estimate(self) -> Estimate:
        return estimate(self.values.values(), proportion=self.score.metric.is_proportion)

    @property
    def rank(self) -> tuple[float, float, float]:
        """Return the sort key, lower is better: the proportion of diverged seeds, the mean of the others, then the
        loss."""
        diverged = len(self.diverged) / (len(self.diverged) + len(self.values))
        loss = fmean([run.loss for run in self.runs] or [0.0])
        return diverged, self.score.metric.sign * self.estimate.mean, loss

    @property
    def n_nondefault(self) -> int:
        """Return the number of settings that differ from those of configs/pos."""
        usual = default_settings(self.scheme)
        return sum(key in usual and text != as_typed(usual[key]) for key, text in self.distinguishing_settings.items())

    @property
    def knows_nothing(self) -> bool:
        """Return whether its scheme is known to have no positions; code from outside poslab is not imported."""
        if not self.runs:
            return False
        node = self.runs[0].config["pos"]
        try:
            return not outside(node) and knows_nothing(parse_scheme(node))
        except SettingError:  # another version's
            return False

    @property
    def median_run(self) -> Run:
        """Return the run of the median figure, whose pictures represent its group."""
        return sorted(self.runs, key=lambda run: (self.score.of(run), run.loss))[(len(self.runs) - 1) // 2]

    def mean(self, key: str) -> float | None:
        """Return the mean of a number in the summaries, or None if a run lacks it."""
        values = [getattr(run.summary, key) for run in self.runs]
        known = [value for value in values if isinstance(value, int | float)]
        return fmean(known) if known and len(known) == len(values) else None

    def at(self, length: int | None) -> str:
        """Return the mean of the metric at another length, as tables print it."""
        values = [run.value(self.score.metric.name, length, self.score.validation) for run in self.runs]
        known = [value for value in values if value is not None]
        return self.score.text(fmean(known) if len(known) == len(values) else None)


def same_tokens(first: Run, second: Run) -> bool:
    """Return whether two runs have the same held-out tokens."""
    keys = ("data_sha256", "vocabulary_size", "validation_tokens", "test_tokens")
    return all(getattr(first.summary, key) == getattr(second.summary, key) for key in keys)


def group_runs(
    runs: Sequence[Run], conditions: list[str], score: Score
) -> tuple[dict[str, tuple[list[Run], list[Run]]], list[Group], list[Repeat]]:
    """Return all (finished, diverged) runs by the label of their group, the groups, and the runs that repeat a seed.

    Runs of a group differ in nothing but the seed. Of one that has no finished run there is only the label.
    """
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
    by_label, found = {}, []
    for members in groups:
        label, first = _label(members[0], first_runs, conditions, edited), members[0]
        finished, diverged = [run for run in members if not run.diverged], [run for run in members if run.diverged]
        by_label[label] = finished, diverged
        conflicting_repeats = [
            repeat.differing_losses for repeat in repeats if repeat.differing_losses and repeat.first in members
        ]
        if finished:
            group = Group(
                label,
                first.summary.pos,
                score,
                values={run.seed: score.of(run) for run in finished},
                diverged=[run.seed for run in diverged],
                settings=first.scheme_settings,
                distinguishing_settings=_distinctions(first, conditions, edited),
                conflicting_repeats=conflicting_repeats,
                runs=finished,
            )
            found.append(group)
    return by_label, found, repeats


def _classes(run: Run) -> tuple[Any, ...]:
    return tuple(targets(run.config["pos"]))


def _label(run: Run, first_runs: list[Run], conditions: list[str], edited: Collection[tuple[Any, ...]]) -> str:
    """Return the scheme of the run's group, with those settings that distinguish it from other groups of that
    scheme."""
    same_name = (other for other in first_runs if other.summary.pos == run.summary.pos)
    namesakes = [_distinctions(other, conditions, edited) for other in same_name]
    return " ".join([run.summary.pos, *distinguishing(_distinctions(run, conditions, edited), namesakes)])


def _distinctions(run: Run, conditions: list[str], edited: Collection[tuple[Any, ...]]) -> dict[str, str]:
    """Return values that distinguish groups of one scheme name.

    They are the scheme's settings, those of its training, its class (two schemes may share a name), its source if its
    classes are `edited`, and the settings and facts in `conditions`.
    """
    settings = run.scheme_settings | {TARGET: run.config["pos"][TARGET]}
    if _classes(run) in edited:
        settings["source"] = run.summary.scheme_fingerprint or "unknown"
    shared = _shared_by_comparable_runs(run)
    return {str(key): _short(value) for key, value in settings.items()} | {
        key: _short(shared.get(key)) for key in conditions
    }


def differences_beyond_the_scheme(runs: Sequence[Run]) -> dict[str, str]:
    """Return settings and facts, other than the scheme's, of which the runs have several values: name -> values in
    words."""
    different = {}
    all_shared = [_shared_by_comparable_runs(run) for run in runs]
    for key in dict.fromkeys(key for shared in all_shared for key in shared):
        values: dict[str, str] = {}
        for run, shared in zip(runs, all_shared, strict=True):
            values.setdefault(_short(shared.get(key)), run.folder.name)
        if len(values) > 1:
            different[key] = ", ".join(f"{value} (as in {name})" for value, name in values.items())
    return different


def _shared_by_comparable_runs(run: Run) -> dict[str, Any]:
    """Return settings and facts that must be equal for two runs to differ only in their scheme, flat."""
    settings = flat(run.config, without=NOT_COMPARED)
    facts = ["data_sha256", "params_trunk", "vocabulary_size"]
    facts += ["train_tokens", "validation_tokens", "test_tokens", "val_loss_tokens"]
    facts += [] if settings.get("early_stopping_patience") else ["steps"]
    held_out = "none" if run.summary.test_loss is None else "measured"  # or losses of a test would meet validations'
    return settings | {key: getattr(run.summary, key) for key in facts} | {"test_loss": held_out}


def _short(value: Any) -> str:
    text = as_typed(value)
    return f"{text[:12]}..." if len(text) == 64 else text  # a sha256


def by_data(runs: Sequence[Run], together: bool = False) -> dict[str, list[Run]]:
    """Return the runs of each task or text by title: "recall", "recall pairs=8".

    together: whether data of one name is always one entry.
    """
    keyed: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        data, encoding = run.summary.data, run.config["data"].get("encoding")
        keyed[(data,) if together else (data, run.summary.data_sha256, encoding)].append(run)
    firsts = [members[0] for members in keyed.values()]
    return {_title(members[0], firsts): members for members in keyed.values()}


def _title(run: Run, firsts: Sequence[Run]) -> str:
    """Return the data's name, and its settings that distinguish it from other data of that name."""
    own = _data_settings(run)
    others = [_data_settings(other) for other in firsts if other is not run and other.summary.data == run.summary.data]
    sha256 = [f"sha256={run.summary.data_sha256[:12]}"] if own in others else []
    return " ".join([run.summary.data, *distinguishing(own, others), *sha256])


def _data_settings(run: Run) -> dict[str, Any]:
    settings = flat({"data": run.config["data"]}, without=NOT_COMPARED)
    return {key.removeprefix("data."): value for key, value in settings.items()}
