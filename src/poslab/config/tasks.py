"""Tasks as settings: a class, named by `data._target_`, and the values of its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from poslab.config.schemes import TARGET
from poslab.config.typed import full_name, imported, typed
from poslab.errors import SettingError
from poslab.tasks import Task


def is_task(node: Any) -> bool:
    """Return whether a `data` node is a task's rather than a text's."""
    return isinstance(node, Mapping) and TARGET in node


def parse_task(node: Mapping[str, Any]) -> Task:
    """Return the task that a `data` node describes. Raises SettingError for another class, or settings it refuses."""
    settings = dict(node)
    target = str(settings.pop(TARGET))
    option = f"data.{TARGET}"
    if target == "???":
        raise SettingError(option, "", "must be given (a class), as in data=recall")
    task = imported(target, option)
    parameters = vars(task).get("__dataclass_params__") if isinstance(task, type) and issubclass(task, Task) else None
    if parameters is None or not parameters.frozen:
        problem = "must be derived from poslab.tasks.Task, with @dataclass(frozen=True, kw_only=True)"
        raise SettingError(option, target, problem)
    return typed(task, settings, "data")


def node_of_task(task: Task) -> dict[str, Any]:
    """Return the node of a task, the inverse of `parse_task`."""
    return {TARGET: full_name(type(task))} | dataclasses.asdict(task)
