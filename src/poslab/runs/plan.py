"""plan.yaml in the folder of a sweep: the groups of runs, with their seeds, that it was to train.

Whoever compares the runs that are there compares the survivors. By the plan a comparison knows which seeds are missing,
and how many groups were to be compared. Each sweep adds its own jobs, and none takes any away. Without a plan the seeds
of any group count.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from poslab.config.fields import NOT_COMPARED, NOT_IDENTITY, Role
from poslab.config.files import require_writable, write_whole
from poslab.config.groups import flat
from poslab.config.nodes import distinguishing
from poslab.errors import UserError
from poslab.runs.folder import SWEEP
from poslab.runs.load import LeftOut, Run
from poslab.runs.readers import values_of

PLAN = "plan.yaml"
_HEAD = "# What sweeps in this folder were to train; compare claims nothing while a seed of it is missing.\n"
_NOT_OF_GROUP = NOT_IDENTITY | {Role.SEED, Role.ROUNDING}  # settings that runs of one group may differ in


@dataclass(frozen=True)
class PlannedGroup:
    """Group of planned runs that differ only in the seed.

    settings: of the scheme. group, shared: hashes of all settings that its runs have in common, and of those that runs
    compared with it must have, too. earlier: seeds that were planned when a comparison was made and further seeds were
    added after it, once for each such comparison.
    """

    scheme: str
    settings: dict[str, Any]
    data: str
    group: str
    shared: str
    seeds: list[int]
    earlier: list[list[int]] = field(default_factory=list)


def settings_sha256(
    pos_name: str, config: Mapping[Any, Any], data: str, source: str | None, without: Collection[Role]
) -> str:
    """Return a hash of settings, without those of some roles, of the data and of the scheme's `source`. config: of
    plain values, as a run or a job has it."""
    settings = {name: value for name, value in flat(config, without=without).items() if name != "pos_name"}
    content = [pos_name, settings, data, source]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def group_keys(pos_name: str, config: Mapping[Any, Any], data: str, source: str | None) -> tuple[str, str]:
    """Return (`group`, `shared`) of a PlannedGroup."""
    group = settings_sha256(pos_name, config, data, source, _NOT_OF_GROUP)
    return group[:16], settings_sha256("", config, data, None, NOT_COMPARED)[:16]


def keys_of(run: Run) -> tuple[str, str]:
    """Return the `group_keys` of a run that is there."""
    return group_keys(run.summary.pos, run.config, run.summary.data_sha256, run.summary.scheme_fingerprint)


def read_plan(folder: Path) -> list[PlannedGroup]:
    """Return the plan of a sweep, empty if there is none. Raises UserError for a file that holds something else."""
    file = folder / PLAN
    if not file.exists():
        return []
    try:
        plain = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(plain, list):
            raise ValueError("no list of groups")
        return [PlannedGroup(**values_of(PlannedGroup, group)) for group in plain]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: can't be read as the plan of a sweep: {' '.join(str(error).split())}") from error


def add_to_plan(folder: Path, groups: Sequence[PlannedGroup]) -> None:
    """Write the groups and seeds that the folder's plan lacks. Raises UserError as `read_plan` does, and if the folder
    can't be written.

    Where the folder has a report, seeds that are added to a group were planned by somebody who may have seen figures.
    """
    if merged([*read_plan(folder), *groups]) == read_plan(folder):
        return
    require_writable("run_dir", folder)
    (folder / SWEEP).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / SWEEP / "plan.lock"):
        earlier = {group.group: group for group in read_plan(folder)}
        looked = any(folder.glob("*/report.html"))
        plan = merged([*earlier.values(), *groups])
        for n, group in enumerate(plan if looked else ()):
            before = earlier.get(group.group, group)
            if group.seeds != before.seeds:
                plan[n] = replace(group, earlier=[*before.earlier, before.seeds])
        content = list(map(asdict, plan))
        write_whole(folder / PLAN, _HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def merged(groups: Sequence[PlannedGroup]) -> list[PlannedGroup]:
    """Return each group once, with all its seeds."""
    by_key: dict[str, PlannedGroup] = {}
    for group in groups:
        so_far = by_key.get(group.group, group)
        earlier = max(so_far.earlier, group.earlier, key=len)
        by_key[group.group] = replace(so_far, seeds=sorted({*so_far.seeds, *group.seeds}), earlier=earlier)
    return list(by_key.values())


def picked(runs: Sequence[Run], sweeps: Mapping[Path, Sequence[PlannedGroup]]) -> list[str]:
    """Return caveats on runs that were named one by one: comparable runs of their sweeps that are left out."""
    keys = [keys_of(run) for run in runs]
    caveats = []
    for folder, plan in sweeps.items():
        shared = [group for group in merged(plan) if group.shared in {own_shared for _, own_shared in keys}]
        others = []
        for group in shared:
            if group.group not in {own for own, _ in keys}:
                namesakes = [other.settings for other in shared if other.scheme == group.scheme]
                others.append(" ".join([group.scheme, *distinguishing(group.settings, namesakes)]))
        if others:
            caveats.append(
                f"picked from a sweep that has {', '.join(others)} as well; whoever picks by the figures needs the "
                f"p-values of all: runs={folder}"
            )
    return caveats


def comparable(diverged: Iterable[Run], finished: Iterable[Run]) -> tuple[list[Run], list[LeftOut]]:
    """Return (the diverged runs that differ from the finished ones only in the scheme, the others)."""
    shared = {keys_of(run)[1] for run in finished}
    alike, others = [], []
    for run in diverged:
        if keys_of(run)[1] in shared:
            alike.append(run)
        else:
            others.append(LeftOut(run.folder, f"{run.divergence}; it has other settings than those compared"))
    return alike, others
