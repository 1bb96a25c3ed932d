"""Position schemes and tasks as settings: a class, named by `_target_` or by an option of configs/pos, and the
values of its fields. Those of a scheme may be schemes in turn.

    pos=OUTER pos.of=INNER pos.of.base=500

A scheme is written as a node: a mapping of its settings with `_target_` among them. Where a field takes a scheme, a
name alone stands for its node.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import yaml
from omegaconf import OmegaConf

from poslab.config.fields import full_name, imported, typed
from poslab.config.files import CONFIGS
from poslab.errors import SettingError, as_typed, suggestion
from poslab.positions import PositionScheme
from poslab.positions.base import require_frozen
from poslab.tasks import Task

TARGET = "_target_"


def schemes() -> dict[str, dict[str, Any]]:
    """Return the options of configs/pos by name, each as a node."""
    nodes = {yaml.stem: OmegaConf.load(yaml) for yaml in sorted(CONFIGS.glob("pos/*.yaml"))}
    return {name: OmegaConf.to_container(node) for name, node in nodes.items()}  # type: ignore[misc]


@cache
def default_scheme() -> str:
    """Return the option of configs/pos that train.py takes where none is chosen."""
    return str(next(default.pos for default in OmegaConf.load(CONFIGS / "train.yaml").defaults if "pos" in default))


def scheme_settings() -> dict[str, Any]:
    """Return every setting of every scheme in configs/pos, with the value "n/a": the keys that all runs share."""
    keys = {key for node in schemes().values() for key, value in node.items() if not isinstance(value, dict)}
    return {f"pos.{key}": "n/a" for key in sorted(keys - {TARGET})}


def parse_scheme(node: Any, option: str = "pos") -> PositionScheme:
    """Return the scheme that a node, or the name of one, describes.

    Raises SettingError, by the setting's name on the command line, where there is no such class or it refuses a
    setting; and where the class is none that a scheme can be, which is its author's mistake.
    """
    if not isinstance(node, str | dict):
        raise SettingError(option, node, "must be a scheme: the name of one, or a class as _target_ and its settings")
    settings = {TARGET: node} if isinstance(node, str) else dict(node)
    target = str(settings.pop(TARGET, ""))
    named_by = f"{option}.{TARGET}" if "." in target else option
    if not target:
        raise SettingError(f"{option}.{TARGET}", "", "must be given (the class of a scheme, or the name of one)")
    if "." not in target:
        known = schemes()
        if target not in known:
            raise SettingError(named_by, target, f"unknown; {suggestion(target, known)}")
        settings = _merged(known[target], settings)
        target = settings.pop(TARGET)
    scheme = imported(target, named_by)
    if not (isinstance(scheme, type) and issubclass(scheme, PositionScheme) and scheme is not PositionScheme):
        raise SettingError(named_by, target, "must be a class derived from poslab.positions.PositionScheme")
    require_frozen(scheme, named_by, target)
    return typed(scheme, settings, option, {PositionScheme: parse_scheme})


def node_of(scheme: PositionScheme) -> dict[str, Any]:
    """Return the node of a scheme, the inverse of `parse_scheme`: every setting, defaults included, in plain values."""
    return {TARGET: full_name(type(scheme))} | {name: _plain(value) for name, value in _settings_of(scheme).items()}


def classes(scheme: PositionScheme) -> list[type]:
    """Return the class of a scheme, and those of the schemes among its settings."""
    inner = (value for value in _settings_of(scheme).values() if isinstance(value, PositionScheme))
    return [type(scheme), *(cls for part in inner for cls in classes(part))]


def _settings_of(scheme: PositionScheme) -> dict[str, Any]:
    """Return the values of its fields; a bare PositionScheme is no dataclass and has none."""
    fields: Any = dataclasses.fields(scheme) if dataclasses.is_dataclass(scheme) else ()
    return {field.name: getattr(scheme, field.name) for field in fields}


def _plain(value: Any) -> Any:
    return node_of(value) if isinstance(value, PositionScheme) else list(value) if isinstance(value, list) else value


def targets(node: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield every class that a node names: its own, and those of the schemes among its settings."""
    yield node.get(TARGET)
    yield from (target for value in node.values() if isinstance(value, Mapping) for target in targets(value))


def flat_node(node: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return a node's values by their names on the command line: {"of._target_": ..., "of.base": 500}."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flat_node(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def shown(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return settings of a scheme as one would type them: {"of": NAME, "of.base": 500}."""
    names = _names()
    return {
        name.removesuffix(f".{TARGET}"): names.get(value, value) if name.endswith(TARGET) else value
        for name, value in flat_node(settings).items()
    }


def distinguishing(settings: Mapping[str, Any], namesakes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the settings, as one would type them, in which any of the namesakes differs.

    Where schemes are settings, those within one say nothing of another: of "outer.scale" only namesakes with the same
    "outer" count.
    """
    own, *others = ({key: as_typed(value) for key, value in each.items()} for each in (settings, *namesakes))

    def differs(key: str) -> bool:
        outer = key.rpartition(".")[0]
        return any(other.get(key) != own[key] for other in others if other.get(outer) == own.get(outer))

    return [f"{key}={text}" for key, text in own.items() if differs(key)]


@cache
def _names() -> dict[Any, str]:
    """Return the options of configs/pos by their classes."""
    return {node[TARGET]: name for name, node in reversed(schemes().items())}


def chosen(node: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a node with the classes that a command line chooses, of one that has its single settings already.

    given: text by the name of the setting, {"of": NAME, "of.base": "500"}. A chosen class keeps no settings but those
    given: others are of the class before it. A name with settings below it is that of a scheme.
    """
    names = {name: text for name, text in given.items() if any(other.startswith(f"{name}.") for other in given)}
    targets_given = (name for name in given if name.rpartition(".")[2] == TARGET)
    names |= {name[: -len(TARGET)].rstrip("."): given[name] for name in targets_given}
    if not names:
        return node
    values: dict[str, Any] = {f"{name}.{TARGET}".lstrip("."): text.strip("'\"") for name, text in names.items()}
    for name, value in flat_node(node).items():
        if name in given or not any(not outer or name.startswith(f"{outer}.") for outer in names):
            values[name] = value
    new: dict[str, Any] = {}
    for name, value in values.items():
        group, _, key = name.rpartition(".")
        part_of(new, group)[key] = value
    return new


def with_settings(node: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a node with the settings of a command line, `given` as in `chosen`."""
    node = copy.deepcopy(node)
    for name, text in given.items():
        group, _, key = name.rpartition(".")
        part_of(node, group)[key] = _value(text)
    return chosen(node, given)


def _value(text: str) -> Any:
    """Return a command line's text as a plain value, before it is converted to the type of its setting."""
    if text.startswith("["):
        with suppress(yaml.YAMLError):
            return yaml.safe_load(text)
    return None if text == "null" else text.strip("'\"")


def part_of(node: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the node of that name within another; a new, empty one where there is none yet."""
    for part in name.split(".") if name else ():
        inner = node.get(part)
        node[part] = node = inner if isinstance(inner, dict) else {}
    return node


def given_settings(arguments: Iterable[str]) -> dict[str, str]:
    """Return the settings of a command line, Hydra's `+name=value` included, as text."""
    return dict(argument.lstrip("+~").split("=", 1) for argument in arguments if "=" in argument)


def given_of(overrides: Iterable[str]) -> dict[str, str]:
    """Return the settings of the scheme on a command line, as `chosen` takes them."""
    given = given_settings(overrides)
    return {name.removeprefix("pos."): text for name, text in given.items() if name.startswith("pos.")}


def _merged(node: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node with some settings changed; a node among them that names its class replaces the one before it."""
    inner = {key: value for key, value in over.items() if isinstance(value, dict) and TARGET not in value}
    merged = {key: _merged(node[key], value) for key, value in inner.items() if isinstance(node.get(key), dict)}
    return {**node, **over, **merged}


# Tasks


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
