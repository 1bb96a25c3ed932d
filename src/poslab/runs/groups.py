"""Groups of runs that differ in nothing but the seed, on the same data, and what distinguishes them.

What tells groups apart becomes columns of the table of results (`poslab.runs.table`), by which its rows are grouped
again (`seedstats.groups`): so a table from elsewhere is compared as run folders are.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from poslab.config.fields import NOT_COMPARED
from poslab.config.groups import flat
from poslab.config.nodes import TARGET, default_option, default_settings, distinguishing, given_settings
from poslab.config.schemes import parse_scheme
from poslab.config.trust import require_trusted
from poslab.errors import as_typed
from poslab.positions.base import knows_nothing
from poslab.runs.load import Run
from poslab.runs.provenance import NO_WEIGHTS, Repeat, initial_weights
from seedstats.table import SOURCE

TRAINING = ("model", "optim", "schedule", "callbacks", "trainer")  # groups whose settings may be factors of a design
_CONTEXT = "model.context_length"  # by which losses are of other windows
_FOLLOWING = {"params_trunk", "parts_fingerprint", "steps"}  # facts that settings decide, unless code was edited
_NAMED = 3  # values of a setting, each with a run that has it
_DIGITS = 8  # of a fingerprint, enough to tell versions of one scheme apart


Reader = Callable[[Run], str]  # of a run's value, as typed


@dataclass(frozen=True)
class RunGroup:
    """Runs by seed, finished or diverged, that differ in nothing else.

    settings: as typed, whatever may distinguish the group from others of its scheme: the settings of the scheme and of
    its training, and what compared runs should have in common and do not.
    """

    scheme: str
    settings: dict[str, str]
    runs: dict[int, Run] = field(default_factory=dict)
    repeats: list[Repeat] = field(default_factory=list)

    @property
    def first(self) -> Run:
        return self.runs[min(self.runs)]

    @property
    def n_nondefault(self) -> int:
        """Return the number of settings that differ from those of configs/pos."""
        usual = default_settings(self.scheme)
        return sum(key in usual and text != as_typed(usual[key]) for key, text in self.settings.items())

    @property
    def knows_nothing(self) -> bool:
        """Return whether its scheme is known to have no positions; code from outside poslab is not imported."""
        try:
            require_trusted(self.first.config, ("pos",))
            return knows_nothing(parse_scheme(self.first.config["pos"]))
        except ValueError:  # somebody's class, or another version's scheme
            return False


def group_runs(runs: Sequence[Run], conditions: Mapping[str, Reader] | None = None) -> list[RunGroup]:
    """Return the groups of runs, those that have a finished one first. conditions: settings and facts that also tell
    groups apart, as `named_conditions` returns them."""
    sources: dict[str, set[str | None]] = defaultdict(set)
    for run in runs:
        sources[run.classes].add(run.summary.scheme_fingerprint)
    edited = {classes for classes, fingerprints in sources.items() if len(fingerprints) > 1}
    groups: dict[tuple[Any, ...], RunGroup] = {}
    for run in sorted(runs, key=lambda run: run.diverged):
        distinct = run.scheme_settings | {TARGET: run.config["pos"][TARGET]}  # as two schemes may share a name
        if run.classes in edited:
            distinct[SOURCE] = (run.summary.scheme_fingerprint or "unknown")[:_DIGITS]
        settings = {str(key): _short(value) for key, value in distinct.items()}
        settings |= {key: read(run) for key, read in (conditions or {}).items()}
        group = groups.setdefault((run.summary.pos, *settings.items()), RunGroup(run.summary.pos, settings))
        if run.seed in group.runs:
            group.repeats.append(Repeat(group.runs[run.seed], run))
        else:
            group.runs[run.seed] = run
    return list(groups.values())


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
            words = initial_weights if key == "init_from" else str
            where = len(values) <= _NAMED  # because more are a sweep, and no run is the odd one out
            different[key] = ", ".join(
                f"{words(value)} (as in {name})" if where else words(value) for value, name in values.items()
            )
    return different


def named_conditions(runs: Sequence[Run], conditions: Collection[str]) -> dict[str, Reader]:
    """Return a reader of each of these settings and facts, in which runs differ.

    Settings of a group that follow from its option, as in `model=gpt2,modern` or `model/norm=layer,rms`, are one
    condition by the group's name, beside those that a command line has changed. A fact that follows from the others is
    none.
    """
    shared: dict[Path, dict[str, Any]] = {}

    def value(run: Run, key: str) -> str:
        if run.folder not in shared:  # because to flatten a configuration takes long
            shared[run.folder] = _shared_by_comparable_runs(run)
        return _short(shared[run.folder].get(key))

    readers: dict[str, Reader] = {key: partial(value, key=key) for key in conditions}
    given = {key for run in runs for key in given_settings(run.config.get("overrides") or ())}
    inner = sorted(key for key in given if "/" in key and key.partition("/")[0] in TRAINING)
    for group in (*inner, *TRAINING):  # those within another first, because the other has their settings, too
        own = {key: read for key, read in readers.items() if key.startswith(f"{group.replace('/', '.')}.")}
        option: dict[str, Reader] = {group: partial(_option, group=group)}
        typed = {key: read for key, read in own.items() if key in given}
        if len(typed) < len(own) and _determines(runs, option | typed, own) and _determines(runs, own, option):
            readers = {key: read for key, read in readers.items() if key not in own} | option | typed
    for fact in _FOLLOWING & readers.keys():
        others = {key: read for key, read in readers.items() if key not in _FOLLOWING}
        if others and _determines(runs, others, {fact: readers[fact]}):
            del readers[fact]
    return readers


def are_crossed(runs: Sequence[Run], conditions: Mapping[str, Reader]) -> bool:
    """Return whether the conditions are settings of training that each scheme was tried with: factors of a design in
    which the scheme can still be said to cause a difference."""
    only_training = all(re.split("[./]", key)[0] in TRAINING and key != _CONTEXT for key in conditions)
    return only_training and not untried(runs, conditions)


def untried(runs: Sequence[Run], conditions: Mapping[str, Reader]) -> str:
    """Return a combination of conditions that only other schemes were tried with, as in "t5 has no run with
    optim=muon"; empty if there is none."""
    tried: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    names = {}
    for run in runs:
        scheme = repr((run.summary.pos, run.scheme_settings))
        names[scheme] = run.summary.pos
        tried[scheme].add(tuple(read(run) for read in conditions.values()))
    all_levels = dict.fromkeys(levels for scheme_levels in tried.values() for levels in sorted(scheme_levels))
    for scheme, own in tried.items():
        if levels := next((levels for levels in all_levels if levels not in own), None):
            settings = " ".join(f"{key}={level}" for key, level in zip(conditions, levels, strict=True))
            return f"{names[scheme]} has no run with {settings}"
    return ""


def _determines(runs: Sequence[Run], first: Mapping[str, Reader], second: Mapping[str, Reader]) -> bool:
    """Return whether runs that agree in the first conditions agree in the second."""
    both = {(tuple(read(run) for read in first.values()), tuple(read(run) for read in second.values())) for run in runs}
    return len({values for values, _ in both}) == len(both)


def _option(run: Run, group: str) -> str:
    """Return the option of a group that the run's command line chose; "default" where a group within it decided."""
    given = given_settings(run.config.get("overrides") or ())
    return given.get(group) or ("default" if "/" in group else default_option(group))


def _shared_by_comparable_runs(run: Run) -> dict[str, Any]:
    """Return settings and facts that must be equal for two runs to differ only in their scheme, flat."""
    settings = flat(run.config, without=NOT_COMPARED)
    facts = ["data_sha256", "params_trunk", "vocabulary_size", "processes"]
    facts += ["train_tokens", "validation_tokens", "test_tokens", "val_loss_tokens"]
    facts += [] if settings.get("early_stopping_patience") else ["steps"]
    held_out = "none" if run.summary.test_loss is None else "measured"  # or losses of a test would meet validations'
    begun = {"init_from": settings.pop("init_group", NO_WEIGHTS)}
    return settings | begun | {key: getattr(run.summary, key) for key in facts} | {"test_loss": held_out}


def _short(value: Any) -> str:
    text = as_typed(value)
    return f"{text[:12]}..." if re.fullmatch(r"[0-9a-f]{64}", text) else text  # a sha256


def by_data(runs: Sequence[Run], together: bool = False) -> dict[str, list[Run]]:
    """Return the runs of each task or text by title: "recall", "recall pairs=8".

    together: whether data of one name is always one entry.
    """
    keyed: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        data, encoding = run.summary.data, run.config["data"].get("encoding")
        keyed[(data,) if together else (data, run.summary.data_sha256, encoding)].append(run)
    titled = {}
    for members in keyed.values():
        data = members[0].summary.data
        namesakes = [others[0] for others in keyed.values() if others[0].summary.data == data]
        settings = [flat({"data": run.config["data"]}, without=NOT_COMPARED) for run in namesakes]
        own = settings.pop(namesakes.index(members[0]))
        told_by = [setting.removeprefix("data.") for setting in distinguishing(own, settings)]
        sha256 = [f"sha256={members[0].summary.data_sha256[:12]}"] if own in settings else []
        titled[" ".join([data, *told_by, *sha256])] = members
    return titled
