"""The configuration that a run goes on with: its own, and the few settings that may change on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from poslab.errors import SettingError, as_typed
from poslab.runs.code import outside
from poslab.runs.folder import RunFolder
from poslab.runs.readers import read_config
from poslab.settings.command_line import given_settings
from poslab.settings.roles import MAY_CHANGE, Role
from poslab.settings.schemes import changed, chosen, given_of, node_of, parse_scheme, targets
from poslab.settings.train import TrainConfig, flat, names, parse, role_of
from poslab.settings.typed import escaped


def resumed(composed: DictConfig, overrides: Sequence[str]) -> TrainConfig:
    """The configuration of the run in `composed.resume`, changed by what the command line gives, and checked. Raises
    SettingError where there is no run, a setting is impossible or can't change, or the run's scheme is not poslab's and
    neither the command line nor `allow_code` names it."""
    if not str(composed.resume):  # which would be the folder that one is in
        raise SettingError("resume", "", "must name the folder of a run")
    folder = Path(os.path.expanduser(str(composed.resume)))
    own, pos_name, recorded = _own(folder, composed, overrides)
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
    folder: Path, composed: DictConfig, overrides: Sequence[str]
) -> tuple[DictConfig, str | None, list[str] | None]:
    """The run's configuration, the name of its scheme and the overrides that it was made of, if it says."""
    own = _read(folder)
    pos_name = own.pop("pos_name", None)
    recorded = _put_together(own.pop("overrides", None), overrides)
    given = given_of(overrides)
    named = chosen(_plain(composed.pos), given)
    foreign = [target for target in outside(_plain(own.pos)) if target not in targets(named)]
    if foreign and not composed.allow_code:
        which = ", ".join(foreign)
        problem = f"its scheme is {which}, which is no part of poslab; allow_code=true imports it, if you trust it"
        raise SettingError("resume", folder, problem)
    # Where this run writes is where it is now, whatever its configuration says.
    own.run_dir, own.resume = None, str(folder)
    own.data.cache_dir = None
    before = _flat(own)
    for key, _, text in (override.lstrip("+~").partition("=") for override in overrides):
        if key in ("experiment", "debug"):
            raise SettingError(key, text, "can't be given with resume, a run keeps its settings; give single ones")
        if key == "run_dir":
            raise SettingError(key, composed.run_dir, "can't be given with resume, which names the run's folder")
        if key == "pos":
            own.pos = _literal(named)
        elif key != "resume" and not key.startswith("pos."):
            node = OmegaConf.select(composed, key)
            value = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
            OmegaConf.update(own, key, value, merge=False, force_add=True)  # one setting, or a whole group
    if given:
        own.pos = _literal(node_of(parse_scheme(changed(_plain(own.pos), given))))
    check_same(folder, _flat(own), before)
    return own, None if pos_name is None else str(pos_name), recorded


def _put_together(recorded: Any, overrides: Sequence[str]) -> list[str] | None:
    """The overrides of a run that goes on with others; None where its own are not known."""
    if not OmegaConf.is_list(recorded):
        return None
    changed = given_settings(overrides)
    kept = [str(override) for override in recorded if not changed.keys() & given_settings([str(override)]).keys()]
    return kept + [o for o in overrides if all(role_of(name) is not Role.COMMAND for name in given_settings([o]))]


def _read(folder: Path) -> DictConfig:
    if folder.is_file():
        raise SettingError("resume", folder, "is a file; name the folder of a run")
    if not folder.is_dir():
        raise SettingError("resume", folder, "no such folder; name that of a run")
    file = RunFolder(folder).config
    if not file.exists():
        raise SettingError("resume", folder, f"no run to go on with, it has no {file.name}")
    try:
        groups = ("pos", "model", "data", "optim", "trainer", "sample", "evaluation")
        return OmegaConf.create(_literal(read_config(file, groups)))
    except (ValueError, OmegaConfBaseException) as error:
        raise SettingError("resume", folder, str(error).splitlines()[0]) from error


def _literal(value: Any) -> Any:
    """A run's values are plain: nothing in them is looked up, be it another setting or the environment."""
    if isinstance(value, dict):
        return {str(key): _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


def _flat(own: DictConfig) -> dict[str, Any]:
    """All settings but those of the command."""
    return flat(_plain(own), without={Role.COMMAND})


def _plain(node: DictConfig) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(node, resolve=True)
    return dict(plain)


def check_same(folder: Path, settings: dict[str, Any], own: dict[str, Any]) -> None:
    """Raises SettingError, naming all of them, where settings differ from the run's own that may not change."""
    changed = {k: v for k, v in settings.items() if v != own.get(k) and role_of(k) not in MAY_CHANGE}
    if changed:
        listed = ", ".join(f"{key}={as_typed(v)} (its own: {as_typed(own.get(key))})" for key, v in changed.items())
        problem = f"the run has other settings, {listed}; what may change is {', '.join(names(MAY_CHANGE))}"
        raise SettingError("resume", folder, problem)
