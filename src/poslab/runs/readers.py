"""Readers of the files of runs: plain values, checked by the types of a dataclass."""

import reprlib
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from poslab.config.fields import in_words, kinds

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where there is one, is ten times as fast


def read_mapping(file: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the mapping in a file. Raises ValueError with a one-line reason if there is none."""
    try:
        content = parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"unfinished: it has no {file.name}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{file.name} can't be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is not a run's")
    return {str(key): value for key, value in content.items()}


def read_config(file: Path, groups: tuple[str, ...] = ("pos", "model", "data")) -> dict[str, Any]:
    """Return a run's config.yaml. Raises ValueError as `read_mapping` does, and for a missing group."""
    config = read_mapping(file, lambda text: yaml.load(text, _YamlLoader))
    if not all(isinstance(config.get(group), dict) for group in groups):
        raise ValueError(f"{file.name} is not a run's")
    return config


def checked(schema: type, plain: Any, **saved_as: type) -> dict[str, Any]:
    """Return the values for the fields of a dataclass; unknown keys are left out. saved_as: types of fields that are
    written as another one. Raises ValueError for a missing field without a default, and a value of another type."""
    if not isinstance(plain, dict):
        raise ValueError("is not a run's")
    missing = [f.name for f in fields(schema) if f.default is f.default_factory is MISSING and f.name not in plain]
    if missing:
        listed = ", ".join(missing if len(missing) < 6 else [*missing[:5], "..."])
        raise ValueError(f"says nothing of {listed}: not a run's, or another version's")
    hints = {name: hint for name, hint in (get_type_hints(schema) | saved_as).items() if name in plain}
    for name, hint in hints.items():
        if not _has_type(plain[name], hint):
            raise ValueError(f"says {name}={reprlib.repr(plain[name])}, which must be {in_words(hint)}")
    return {name: plain[name] for name in hints}


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a plain value is of a type; whole numbers are never negative, and pass for numbers."""
    if hint is Any:
        return True
    if isinstance(value, list | dict):
        kind = next((kind for kind in kinds(hint) if get_origin(kind) is type(value)), None)
        items = value.values() if isinstance(value, dict) else value
        item_type = get_args(kind)[-1] if kind is not None else None
        return kind is not None and all(_has_type(item, item_type) for item in items)
    if type(value) is int:
        return 0 <= value < 2**63 and bool({int, float} & set(kinds(hint)))
    return type(value) in kinds(hint)
