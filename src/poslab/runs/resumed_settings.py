"""Settings of a run that resumes: its own, and the few that the command line may change."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from poslab.config.command_line import command_line
from poslab.config.fields import MAY_CHANGE, Role
from poslab.config.files import missing
from poslab.config.groups import flat, names, role_of
from poslab.config.hugging_face import is_remote
from poslab.config.nodes import TARGET, given_of, given_settings, targets, with_settings
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.train import NO_LIMITS, PROVENANCE_FIELDS, TrainConfig, parse, resolved, with_typed_limits
from poslab.config.trust import refuse_links, require_trusted
from poslab.errors import SettingError, as_typed
from poslab.runs.folder import RunFolder, run_at
from poslab.runs.readers import read_config


def settings_of_resumed_run(composed: DictConfig, overrides: Sequence[str]) -> TrainConfig:
    """Read the configuration of the run in `composed.resume`, change it by the command line, and check it.

    Raises SettingError where there is no run, a setting is impossible or can't change, or the run's scheme, or another
    of its classes, is not poslab's and neither the command line nor `allow_code` names it.
    """
    if not str(composed.resume):  # which would be the folder that one is in
        raise SettingError("resume", "", "must name the folder of a run")
    folder = run_at(str(composed.resume), idle=True)
    line = resolved(composed)
    own, pos_name, own_overrides = _read_settings(folder, line, overrides)
    merged = _merge(own, line, overrides)
    if not RunFolder(folder).finished:
        _keep_length(own.get("trainer"), merged.get("trainer"), given_settings(overrides))
    before, now = (flat(settings, without={Role.COMMAND}) for settings in (own, merged))
    changed = {k: v for k, v in now.items() if v != before.get(k) and role_of(k) not in MAY_CHANGE}
    if changed:
        kept = ", ".join(_kept(changed, before | {"pos": pos_name}, given_settings(overrides)))
        if any(name.startswith("model.") for name in changed):  # into which its weights may not fit
            problem = f"the run keeps its {kept}; what may change is {', '.join(names(MAY_CHANGE))}"
        else:
            new = [setting for setting in overrides if not setting.startswith("resume=")]
            replaced = {"run_dir", "init_from", *given_settings(new)}
            own_ones = [own for own in own_overrides or () if not given_settings([own]).keys() & replaced]
            command = command_line("train", *own_ones, f"init_from={folder}", *new)
            problem = f"{command} begins a new run with its weights; this one keeps its {kept}"
        raise SettingError("resume", folder, problem)
    if own_overrides is not None:  # those of the command line replace the run's own
        again = given_settings(overrides).keys()
        own_overrides = [kept for kept in own_overrides if not again & given_settings([kept]).keys()]
        for override in overrides:
            if all(role_of(name) is not Role.COMMAND for name in given_settings([override])):
                own_overrides.append(override)
    try:
        parsed = parse(merged, pos_name)
    except SettingError as error:
        if any(override.lstrip("+~").startswith(f"{error.option}=") for override in overrides):
            raise
        where = f"in {RunFolder(folder).config}"
        if role_of(error.option) in MAY_CHANGE:
            where += f"; {error.option}=... gives another"
        raise SettingError(error.option, error.value, f"{error.problem} ({where})") from error
    on_this_machine = "data.path" not in given_settings(overrides) and not line["allow_code"]
    return replace(parsed, overrides=own_overrides, data_on_this_machine=on_this_machine)


def _read_settings(
    folder: Path, line: dict[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], str | None, list[str] | None]:
    """Return the run's own settings, the name of its scheme and the overrides that it was made of, if recorded.

    line: the composed settings of this command line, which decide whether the run's classes may be imported.
    """
    if not folder.is_dir():
        raise SettingError("resume", folder, missing(folder, "no such folder; name that of a run"))
    try:
        own = read_config(RunFolder(folder).config)
    except ValueError as error:
        raise SettingError("resume", folder, f"no run to resume: {error}") from error
    try:
        require_trusted(own, named=_named(line, overrides), allow_code=line["allow_code"])
        if not line["allow_code"]:
            refuse_links(folder)
    except ValueError as error:
        raise SettingError("resume", folder, str(error)) from error
    for option, value in {"data.path": own["data"].get("path"), "init_from": own.get("init_from")}.items():
        if is_remote(value) and option not in given_settings(overrides):
            raise SettingError(option, value, "is on another machine, which is not contacted unless a command names it")
    pos_name, own_overrides = own.pop("pos_name", None), own.pop("overrides", None)
    for field in PROVENANCE_FIELDS:  # its checkpoint has them
        own.pop(field, None)
    # Where this run writes is where it is now, whatever its configuration says.
    own |= {"run_dir": None, "resume": str(folder)}
    if "path" in own["data"]:
        own["data"] = own["data"] | {"cache_dir": None}
    return own, pos_name, own_overrides


def _named(line: dict[str, Any], overrides: Sequence[str]) -> list[Any]:
    """Return the classes that the overrides name, by an option of a group or by themselves."""
    values = {name: _at(line, name.replace("/", ".")) for name in given_settings(overrides)}
    by_itself = [value for name, value in values.items() if name.endswith(TARGET)]
    return [*by_itself, *(target for target in targets(values) if target is not None)]


def _merge(own: dict[str, Any], line: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the run's own settings, with those that the overrides name taken from `line`, the composed ones.

    Raises SettingError for an override that stands for several settings, or for the run's folder.
    """
    merged, given = copy.deepcopy(own), given_settings(overrides)
    for name in ("experiment", "debug", "run_dir"):
        if name in given:
            problem = "names the run's folder" if name == "run_dir" else "keeps a run's settings; give single ones"
            raise SettingError(name, given[name], f"can't be given with resume, which {problem}")
    for name in given:
        if name == "resume" or name.partition(".")[0] == "pos":
            continue
        option = name.replace("/", ".")
        _set(merged, option, _at(line, option))
        for length, value in flat(own).items():  # an option of a group doesn't change the run's length
            if length.startswith(f"{option}.") and role_of(length) is Role.LENGTH and length not in given:
                _set(merged, length, value)
    merged["trainer"] = with_typed_limits(merged["trainer"], overrides)
    if scheme_settings := given_of(overrides):
        merged["pos"] = with_settings(line["pos"] if "pos" in given else own["pos"], scheme_settings)
    elif "pos" in given:
        merged["pos"] = line["pos"]
    if "pos" in given or scheme_settings:
        merged["pos"] = node_of(parse_scheme(merged["pos"]))
    return merged


def _kept(changed: Iterable[str], before: dict[str, Any], given: Iterable[str]) -> list[str]:
    """Return the run's own values of what the command line would change, by the names that it gives: of an option that
    stands for many settings its name."""
    names_given = [name.replace("/", ".") for name in given]
    typed = [name for name in names_given if any(f"{each}.".startswith(f"{name}.") for each in changed)]
    return [f"{name}={as_typed(before[name])}" if before.get(name) else name for name in typed or changed]


def _keep_length(before: Any, now: Any, given: Container[str]) -> None:
    """Let the limits that an unfinished run's learning rate follows hold beside a `max_time` of the command line.

    before, now: the trainer's settings. Raises SettingError where one that the run has is to go, or another to come.
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return  # of a damaged description, which is refused where it is checked
    limits = {name: before.get(name, none) for name, none in NO_LIMITS.items()}
    own = [f"trainer.{name}={value}" for name, value in limits.items() if value != NO_LIMITS[name]]
    for name in ("max_epochs", "max_steps"):
        if f"trainer.{name}" not in given:
            now[name] = limits[name]
        if (now[name] == NO_LIMITS[name]) != (limits[name] == NO_LIMITS[name]):
            problem = f"the run is unfinished, and its length {' and '.join(own)}, which can only become greater"
            raise SettingError(f"trainer.{name}", now[name], f"{problem}; trainer.max_time may end it earlier")


def _at(settings: Any, name: str) -> Any:
    """Return the value of a setting, or a whole group, by its name; None where there is none."""
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return copy.deepcopy(settings)


def _set(settings: dict[str, Any], name: str, value: Any) -> None:
    *way, last = name.split(".")
    for part in way:
        if not isinstance(settings.get(part), dict):
            settings[part] = {}
        settings = settings[part]
    settings[last] = value
