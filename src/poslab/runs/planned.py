"""plan.yaml in the folder of a sweep: which groups of runs, with which seeds, were to be trained. Loads no torch.

Whoever compares the runs that are there compares the survivors. By the plan a comparison knows which seeds are missing,
and how many groups were to be compared. Each sweep adds its own jobs, and none takes any away.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from poslab.config.files import require_writable, write_whole
from poslab.config.roles import NOT_COMPARED, NOT_IDENTITY, Role
from poslab.config.train import flat
from poslab.errors import UserError
from poslab.runs.folder import SWEEP
from poslab.runs.load import Run
from poslab.runs.readers import checked

PLAN = "plan.yaml"
_NOT_OF_GROUP = NOT_IDENTITY | {Role.SEED, Role.ROUNDING}  # settings that runs of one group may differ in


@dataclass(frozen=True)
class PlannedGroup:
    """Runs to come that differ in nothing but the seed. settings: of the scheme. group, shared: fingerprints of all
    settings that its runs have in common, and of those that runs compared with it must have, too."""

    scheme: str
    settings: dict[str, Any]
    data: str
    group: str
    shared: str
    seeds: list[int]


def settings_sha256(
    pos_name: str, config: Mapping[Any, Any], data: str, source: str | None, without: Collection[Role]
) -> str:
    """A hash of settings, without those of some roles, the data and the scheme's `source`. config: of plain values, by
    a run or a job."""
    settings = {name: value for name, value in flat(config, without=without).items() if name != "pos_name"}
    content = [pos_name, settings, data, source]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def group_keys(pos_name: str, config: Mapping[Any, Any], data: str, source: str | None) -> tuple[str, str]:
    """(`group`, `shared`) of a PlannedGroup."""
    group = settings_sha256(pos_name, config, data, source, _NOT_OF_GROUP)
    return group[:16], settings_sha256("", config, data, None, NOT_COMPARED)[:16]


def keys_of(run: Run) -> tuple[str, str]:
    """The same of a run that is there."""
    return group_keys(run.summary.pos, run.config, run.summary.data_sha256, run.summary.scheme_fingerprint)


def read_plan(folder: Path) -> list[PlannedGroup]:
    """None where the folder has no plan. Raises UserError for a file that holds something else."""
    file = folder / PLAN
    if not file.exists():
        return []
    try:
        plain = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(plain, list):
            raise ValueError("no list of groups")
        return [PlannedGroup(**checked(PlannedGroup, group)) for group in plain]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: can't be read as the plan of a sweep: {' '.join(str(error).split())}") from error


def add_to_plan(folder: Path, groups: Sequence[PlannedGroup]) -> None:
    """Writes the groups and seeds that the folder's plan lacks. Raises UserError as `read_plan` does, and where the
    folder can't be written."""
    if merged([*read_plan(folder), *groups]) == read_plan(folder):
        return
    require_writable("run_dir", folder)
    (folder / SWEEP).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / SWEEP / "plan.lock"):
        content = [asdict(group) for group in merged([*read_plan(folder), *groups])]
        write_whole(folder / PLAN, _HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def merged(groups: Sequence[PlannedGroup]) -> list[PlannedGroup]:
    """Each group once, with all its seeds."""
    by_key: dict[str, PlannedGroup] = {}
    for group in groups:
        known = by_key.get(group.group, group)
        by_key[group.group] = replace(known, seeds=sorted({*known.seeds, *group.seeds}))
    return list(by_key.values())


_HEAD = "# What sweeps in this folder were to train; compare claims nothing while a seed of it is missing.\n"
