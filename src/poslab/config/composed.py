"""Hydra's reading of a command line: the name of the scheme, and refusals in one line of the user's words."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError

from poslab.config.command_line import given_settings
from poslab.config.files import CONFIGS
from poslab.config.roles import Role
from poslab.config.train import GROUPS_WITHIN, names
from poslab.errors import suggestion


def scheme_name(running: Any) -> str | None:
    """Return the option chosen for `pos`; None where the command line puts another class in its place.

    running: Hydra's own part of the configuration.
    """
    if any(override.lstrip("+~").startswith("pos._target_=") for override in running.overrides.task):
        return None
    return str(running.runtime.choices["pos"])


def with_any_scheme(overrides: Iterable[str]) -> list[str]:
    """Return the overrides so that Hydra takes every setting of the scheme, of the task and of a group that may be
    null: it knows those of a yaml, and of a sweep's default one, not those of a class, which are checked later. The
    name of a scheme comes before its settings, which else would be replaced by it."""
    settings = [f"++{o.lstrip('+')}" if _is_of_class(o.lstrip("+").partition("=")[0]) else o for o in overrides]
    outer_first = iter(sorted(filter(is_of_scheme, settings), key=lambda setting: setting.partition("=")[0].count(".")))
    return [next(outer_first) if is_of_scheme(setting) else setting for setting in settings]


def _is_of_class(name: str) -> bool:
    if name.startswith("pos.") or name.rpartition(".")[0] in GROUPS_WITHIN:
        return True
    return name.startswith("data.") and name not in names(list(Role))


def is_of_scheme(setting: str) -> bool:
    return setting.startswith("++pos.")


def explain(error: Exception, arguments: Iterable[str]) -> str:
    """Return one line for an error in which Hydra or OmegaConf refuse a command line: option, value and valid ones."""
    given = given_settings(arguments)
    message = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not of the form option=value; quote values with special characters"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"{group}={name}: unknown; {suggestion(name, error.options)}"
    if match := re.match(r"Could not override '([^']+)'", message):
        option = match[1]
        problem = f"unknown setting; {suggestion(option, _settings_near(option))}"
        if option.startswith("data.") and option in names(list(Role)):
            problem = "a text has this setting, a task doesn't"
        return f"{option}={given.get(option, '...')}: {problem}"
    if match := re.match(r"Ambiguous value for argument '([^=]+)=", message):
        option = match[1].lstrip("+")
        return f"{option}={given.get(option, '...')}: must be one value; -m runs each of several"
    if isinstance(error, InterpolationResolutionError):
        typed = [f"{option}={value}: " for option, value in given.items() if "${" in value]
        return f"{''.join(typed[:1])}{message}"
    bad_option = "Config group override" in message or "choices." in message  # such as pos=5, or a list
    for group, options in config_groups().items() if bad_option else ():
        if given.get(group, options[0]) not in options:
            return f"{group}={given[group]}: must be one option; {suggestion(given[group], options)}"
    return message


def config_groups(roots: Iterable[Path] = (CONFIGS,)) -> dict[str, list[str]]:
    """Return the options of every group in these folders."""
    found: dict[str, set[str]] = {}
    for option in (option for root in roots for option in root.glob("*/*.yaml")):
        found.setdefault(option.parent.name, set()).add(option.stem)
    return {group: sorted(found[group]) for group in sorted(found)}


def _settings_near(option: str) -> list[str]:
    """Return the settings of the option's group, or else those of the top level and all groups."""
    group = option.partition(".")[0]
    known = names(list(Role))
    of_group = [name for name in known if name.startswith(f"{group}.")]
    return of_group or [*config_groups(), *(name for name in known if "." not in name)]
