"""Tasks as settings: a class, named by `data._target_`, and the values of its fields. Nothing here loads torch."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from poslab.errors import SettingError
from poslab.settings.schemes import TARGET
from poslab.settings.typed import typed
from poslab.tasks import Task


def is_task(node: Any) -> bool:
    """Whether a `data` node is a task's; else it is a text's."""
    return isinstance(node, Mapping) and TARGET in node


def parse_task(node: Mapping[str, Any]) -> Task:
    """The task that a `data` node describes. Raises SettingError for a class that is none, or refuses its settings."""
    settings = dict(node)
    target = str(settings.pop(TARGET))
    option = f"data.{TARGET}"
    if target == "???":
        raise SettingError(option, "", "must be given (a class), as in data=recall")
    try:
        module, _, name = target.rpartition(".")
        task = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the import of somebody's file raises
        raise SettingError(option, target, f"can't be imported: {error}".splitlines()[0]) from error
    parameters = vars(task).get("__dataclass_params__") if isinstance(task, type) and issubclass(task, Task) else None
    if parameters is None or not parameters.frozen:
        problem = "must be derived from poslab.tasks.Task, with @dataclass(frozen=True, kw_only=True)"
        raise SettingError(option, target, problem)
    try:
        return typed(task, settings, "data")
    except SettingError:
        raise
    except ValueError as error:  # of somebody's __post_init__
        raise SettingError(option, target, f"refuses its settings: {error}") from error


def node_of_task(task: Task) -> dict[str, Any]:
    """The inverse of `parse_task`."""
    return {TARGET: f"{type(task).__module__}.{type(task).__qualname__}"} | dataclasses.asdict(task)
