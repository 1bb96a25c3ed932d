"""Settings of a run that resumes: its own, and the few that the command line may change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from poslab.config.command_line import given_settings
from poslab.config.fields import MAY_CHANGE, Role
from poslab.config.schemes import changed, chosen, given_of, is_task, node_of, parse_scheme, part_of, targets
from poslab.config.train import PROVENANCE_FIELDS, TrainConfig, flat, names, parse, resolved, role_of
from poslab.errors import SettingError, as_typed
from poslab.runs.code import distrust, outside
from poslab.runs.folder import RunFolder
from poslab.runs.readers import read_config


def settings_of_resumed_run(composed: DictConfig, overrides: Sequence[str]) -> TrainConfig:
    """Read the configuration of the run in `composed.resume`, change it by the command line, and check it.

    Raises SettingError where there is no run, a setting is impossible or can't change, or the run's scheme is not
    poslab's and neither the command line nor `allow_code` names it.
    """
    if not str(composed.resume):  # which would be the folder that one is in
        raise SettingError("resume", "", "must name the folder of a run")
    folder = Path(os.path.expanduser(str(composed.resume)))
    own, pos_name, recorded = _own(folder, resolved(composed), overrides)
    try:
        return replace(parse(own, pos_name), overrides=recorded)
    except SettingError as error:
        if any(override.lstrip("+~").startswith(f"{error.option}=") for override in overrides):
            raise
        where = f"in {RunFolder(folder).config}"
        if role_of(error.option) in MAY_CHANGE:
            where += f"; {error.option}=... gives another"
        raise SettingError(error.option, error.value, f"{error.problem} ({where})") from error


def _own(
    folder: Path, composed: dict[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], str | None, list[str] | None]:
    """Return the run's configuration, the name of its scheme and the overrides that it was made of, if recorded."""
    own = _read(folder)
    pos_name = own.pop("pos_name", None)
    recorded = _joined(own.pop("overrides", None), overrides)
    for field in PROVENANCE_FIELDS:  # its checkpoint has them
        own.pop(field, None)
    given = given_of(overrides)
    named = chosen(composed["pos"], given)
    foreign = [target for target in outside(own["pos"]) if target not in targets(named)]
    for kind, foreign_targets in (("scheme", foreign), ("task", outside(own["data"]))):
        if problem := distrust(kind, foreign_targets, composed["allow_code"]):
            raise SettingError("resume", folder, problem)
    # Where this run writes is where it is now, whatever its configuration says.
    own |= {"run_dir": None, "resume": str(folder)}
    if not is_task(own["data"]):
        own["data"] = own["data"] | {"cache_dir": None}
    before = flat(own, without={Role.COMMAND})
    for key, _, text in (override.lstrip("+~").partition("=") for override in overrides):
        if key in ("experiment", "debug"):
            raise SettingError(key, text, "can't be given with resume, a run keeps its settings; give single ones")
        if key == "run_dir":
            raise SettingError(key, composed[key], "can't be given with resume, which names the run's folder")
        if key == "pos":
            own["pos"] = named
        elif key != "resume" and not key.startswith("pos."):
            group, _, name = key.rpartition(".")  # one setting, or a whole group
            part_of(own, group)[name] = part_of(composed, group).get(name)
    if given:
        own["pos"] = node_of(parse_scheme(changed(own["pos"], given)))
    _check_same(folder, flat(own, without={Role.COMMAND}), before)
    return own, None if pos_name is None else str(pos_name), recorded


def _joined(recorded: Any, overrides: Sequence[str]) -> list[str] | None:
    """Join the overrides of a run with those that it resumes with; None where its own are not known."""
    if not isinstance(recorded, list):
        return None
    changed = given_settings(overrides)
    kept = [str(override) for override in recorded if not changed.keys() & given_settings([str(override)]).keys()]
    return kept + [o for o in overrides if all(role_of(name) is not Role.COMMAND for name in given_settings([o]))]


def _read(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise SettingError("resume", folder, "no such folder; name that of a run")
    try:
        groups = ("pos", "model", "data", "optim", "trainer", "sample", "evaluation")
        return read_config(RunFolder(folder).config, groups)
    except ValueError as error:
        raise SettingError("resume", folder, f"no run to resume: {error}") from error


def _check_same(folder: Path, settings: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise SettingError, naming all of them, where settings differ from the run's own that may not change."""
    changed = {k: v for k, v in settings.items() if v != own.get(k) and role_of(k) not in MAY_CHANGE}
    if changed:
        listed = ", ".join(f"{key}={as_typed(v)} (its own: {as_typed(own.get(key))})" for key, v in changed.items())
        problem = f"the run has other settings, {listed}; what may change is {', '.join(names(MAY_CHANGE))}"
        raise SettingError("resume", folder, problem)
