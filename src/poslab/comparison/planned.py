"""Planned groups and seeds of a comparison, from the plans of sweeps or, without one, from its runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from poslab.comparison.groups import Group
from poslab.comparison.statistics import Difference
from poslab.runs.load import LeftOut, Run
from poslab.runs.planned import PlannedGroup, keys_of, merged

Key = TypeVar("Key")


class Lost(NamedTuple):
    """Group without a finished run: its name, its seeds, and how many of them diverged."""

    name: str
    seeds: frozenset[int]
    diverged: int


@dataclass(frozen=True)
class Planned:
    """Planned seeds of a comparison.

    seeds: by label, of planned groups. found: by label, of all groups, the finished or diverged seeds. lost: groups
    without a finished run.
    """

    seeds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    found: Mapping[str, frozenset[int]] = field(default_factory=dict)
    lost: Sequence[Lost] = ()

    def of_pair(self, first: str, second: str) -> frozenset[int]:
        """Return the seeds planned for both groups; if one has no plan, all that any group has."""
        pair = (first, second)
        if all(label in self.seeds for label in pair):
            beyond = frozenset[int]().union(*(self.found[label] - self.seeds[label] for label in pair))
            return self.seeds[first] & self.seeds[second] | beyond
        return frozenset[int]().union(*self.found.values(), *(self.seeds.get(label, frozenset()) for label in pair))

    def of_pairs(self, pairs: Iterable[tuple[str, str]]) -> frozenset[int]:
        """Return the seeds planned for all of some pairs, which are compared by their means."""
        return frozenset[int]().union(*(self.of_pair(*pair) for pair in pairs))

    @property
    def groups(self) -> int:
        """Return the number of groups with several planned seeds."""
        own = (self.seeds.get(label, frozenset()) | seeds for label, seeds in self.found.items())
        return sum(len(seeds) > 1 for seeds in [*own, *(group.seeds for group in self.lost)])

    @property
    def sentences(self) -> list[str]:
        """Return sentences on groups without a finished run."""
        said = []
        for group in self.lost:
            planned, missing = len(group.seeds), len(group.seeds) - group.diverged
            parts = [f"{group.diverged} of {planned} seeds diverged"] if group.diverged else []
            parts += [f"{missing} of {planned} seeds are missing"] if missing else []
            said.append(f"{group.name} has no finished run: {', '.join(parts)}")
        return said

    @property
    def lost_names(self) -> str:
        return ", ".join(group.name for group in self.lost)


def planned_seeds(groups: Sequence[Group], plan: Sequence[PlannedGroup]) -> Planned:
    """Return the planned seeds of the groups, of those whose runs all diverged, and of planned groups without runs."""
    keys = {group.label: keys_of([*group.runs, *group.diverged][0]) for group in groups}
    shared = {of_group[1] for label, of_group in keys.items()}
    relevant = {group.group: group for group in merged(plan) if group.shared in shared}
    found = {group.label: frozenset(run.seed for run in [*group.runs, *group.diverged]) for group in groups}
    seeds = {label: frozenset(relevant[key].seeds) for label, (key, _) in keys.items() if key in relevant}
    there = {key for key, _ in keys.values()}
    lost = [
        Lost(group.label, found[group.label] | seeds.get(group.label, frozenset()), len(group.diverged))
        for group in groups
        if not group.runs
    ]
    names = _names(list(relevant.values()))
    lost += [Lost(names[key], frozenset(group.seeds), 0) for key, group in relevant.items() if key not in there]
    finished = {group.label for group in groups if group.runs}
    return Planned(seeds, {label: of for label, of in found.items() if label in finished}, lost)


def picked(runs: Sequence[Run], sweeps: Mapping[Path, Sequence[PlannedGroup]]) -> list[str]:
    """Return caveats on runs that were named one by one: comparable runs of their sweeps that are left out."""
    keys = [keys_of(run) for run in runs]
    caveats = []
    for folder, plan in sweeps.items():
        shared = [group for group in merged(plan) if group.shared in {of_all for _, of_all in keys}]
        names = _names(shared)
        others = [names[group.group] for group in shared if group.group not in {own for own, _ in keys}]
        if others:
            caveats.append(
                f"picked from a sweep that has {', '.join(others)} as well; whoever picks by the figures needs the "
                f"p-values of all: runs={folder}"
            )
    return caveats


def unsettled(by_label: Mapping[str, Difference], planned: Planned, baseline: str, first: str) -> dict[str, Difference]:
    """Return the differences from a default baseline, without claims if a lost group might have been the baseline.

    first: the scheme that is the default baseline if it has runs.
    """
    might = [group.name for group in planned.lost if first == group.name.split()[0] or first != baseline.split()[0]]
    if not might:
        return dict(by_label)
    why = f"the baseline would be {might[0]}" if len(might) == 1 else f"the baseline might be {' or '.join(might)}"
    return _without_claims(by_label, f"{why}, which has no finished run")


def without_lost(found: Mapping[Key, Difference], planned: Planned) -> dict[Key, Difference]:
    """Return means over groups, without claims where some of the planned groups are missing."""
    if not planned.lost:
        return dict(found)
    return _without_claims(found, f"there is no finished run of {planned.lost_names}")


def _without_claims(found: Mapping[Key, Difference], why: str) -> dict[Key, Difference]:
    return {key: replace(d, p_value=None, outcomes=replace(d.outcomes, unsettled=why)) for key, d in found.items()}


def comparable(diverged: Iterable[Run], finished: Iterable[Run]) -> tuple[list[Run], list[LeftOut]]:
    """Return (the diverged runs that differ from the finished ones only in the scheme, the others)."""
    shared = {keys_of(run)[1] for run in finished}
    alike, others = [], []
    for run in diverged:
        if keys_of(run)[1] in shared:
            alike.append(run)
        else:
            others.append(LeftOut(run.folder, f"{run.diverged}; it has other settings than those compared"))
    return alike, others


def _names(groups: Sequence[PlannedGroup]) -> dict[str, str]:
    """Return names of planned groups: the scheme, and the settings that distinguish it from others of that name."""
    names = {}
    for group in groups:
        namesakes = [other.settings for other in groups if other.scheme == group.scheme]
        told = (
            f"{key}={value}" for key, value in group.settings.items() if any(o.get(key) != value for o in namesakes)
        )
        names[group.group] = " ".join([group.scheme, *told])
    return names
