"""Readers of the files of runs: plain values for the fields of dataclasses."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from poslab.config.files import refuse_lfs_pointer
from poslab.config.nodes import TARGET
from poslab.errors import first_line

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where there is one, is ten times as fast


def read_mapping(file: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the mapping in a file. Raises ValueError with a one-line reason if there is none."""
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # which may have no end, or never begin
            raise ValueError("it is a device or a pipe")
        refuse_lfs_pointer(file)
        content = parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"unfinished: it has no {file.name}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file.name} can't be read: {first_line(error)}") from error
    except RecursionError as error:
        raise ValueError(f"{file.name} can't be read: {ENDLESS}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is not a run's")
    return {str(key): value for key, value in content.items()}


def read_config(file: Path) -> dict[str, Any]:
    """Return a run's config.yaml. Raises ValueError as `read_mapping` does, and for what no run has written there."""
    config = read_mapping(file, lambda text: yaml.load(text, _YamlLoader))
    if is_endless(config):
        raise ValueError(f"{file.name} can't be read: {ENDLESS}")
    if not is_config(config) or not fits(config.get("overrides"), list[str] | None):
        raise ValueError(f"{file.name} is not a run's")
    return config


def is_config(config: Any) -> bool:
    """Return whether settings of a run, of a config.yaml or a checkpoint, have the groups of all runs."""
    if not isinstance(config, dict) or not all(
        isinstance(config.get(group), dict) for group in ("pos", "model", "data")
    ):
        return False
    groups = ("optim", "schedule", "callbacks", "logger", "trainer", "sample", "evaluation")
    return isinstance(config["pos"].get(TARGET), str) and all(fits(config.get(part), dict | None) for part in groups)


_DEEPEST, _MOST_NODES = 50, 100_000
ENDLESS = "it is nested, or refers to itself, without end"


def is_endless(content: Any) -> bool:
    """Return whether plain values are nested deeper than any settings, or are more than any, as by aliases of yaml."""
    nodes = 0
    level = [content]
    for _ in range(_DEEPEST):
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
        nodes += len(level)
        if not level:
            return False
        if nodes > _MOST_NODES:
            break
    return True


def values_of(schema: type, plain: Any) -> dict[str, Any]:
    """Return the values for the fields of a dataclass; unknown keys are left out. Raises ValueError for a missing field
    without a default, and for a value of another type."""
    if not isinstance(plain, dict):
        raise ValueError("is not a run's")
    missing = [f.name for f in fields(schema) if f.default is f.default_factory is MISSING and f.name not in plain]
    if missing:
        listed = ", ".join(missing if len(missing) < 6 else [*missing[:5], "..."])
        raise ValueError(f"says nothing of {listed}: not a run's, or another version's")
    values = {field.name: plain[field.name] for field in fields(schema) if field.name in plain}
    hints = _hints(schema)
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise ValueError(f"has something else for {name}: not a run's, or another version's")
    return values


@cache
def _hints(schema: type) -> dict[str, Any]:
    return get_type_hints(schema)


def fits(value: Any, hint: Any) -> bool:
    """Return whether a plain value is of a type; a dataclass is a mapping."""
    kind, within = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(fits(value, choice) for choice in within)
    if kind is list:
        if not isinstance(value, list):
            return False
        if within[0] is float:  # of which there may be a million
            return set(map(type, value)) <= {float, int}
        return all(fits(item, within[0]) for item in value)
    if kind is dict:
        return isinstance(value, dict) and all(fits(k, within[0]) and fits(v, within[1]) for k, v in value.items())
    if is_dataclass(hint) or hint is dict:
        return isinstance(value, dict)
    if hint is Any:
        return True
    if hint is float:
        return type(value) in (float, int)
    return value is None if hint is NoneType else type(value) is hint
