"""Readers of the files of runs: plain values for the fields of dataclasses."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import yaml

from poslab.config.files import refuse_lfs_pointer
from poslab.errors import first_line

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where there is one, is ten times as fast


def read_mapping(file: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the mapping in a file. Raises ValueError with a one-line reason if there is none."""
    try:
        refuse_lfs_pointer(file)
        content = parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"unfinished: it has no {file.name}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file.name} can't be read: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is not a run's")
    return {str(key): value for key, value in content.items()}


def read_config(file: Path) -> dict[str, Any]:
    """Return a run's config.yaml. Raises ValueError as `read_mapping` does, and for a missing group."""
    config = read_mapping(file, lambda text: yaml.load(text, _YamlLoader))
    if not all(isinstance(config.get(group), dict) for group in ("pos", "model", "data")):
        raise ValueError(f"{file.name} is not a run's")
    return config


def values_of(schema: type, plain: Any) -> dict[str, Any]:
    """Return the values for the fields of a dataclass; unknown keys are left out. Raises ValueError for a missing field
    without a default."""
    if not isinstance(plain, dict):
        raise ValueError("is not a run's")
    missing = [f.name for f in fields(schema) if f.default is f.default_factory is MISSING and f.name not in plain]
    if missing:
        listed = ", ".join(missing if len(missing) < 6 else [*missing[:5], "..."])
        raise ValueError(f"says nothing of {listed}: not a run's, or another version's")
    return {field.name: plain[field.name] for field in fields(schema) if field.name in plain}
