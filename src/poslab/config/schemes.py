"""Position schemes and tasks made of nodes (`poslab.config.nodes`): classes, with settings checked by their fields."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

from poslab.config.checking import checked, full_name, imported
from poslab.config.nodes import TARGET, known_settings, merged, schemes
from poslab.config.schema import DataConfig
from poslab.errors import SettingError, suggestion
from poslab.positions import PositionScheme
from poslab.positions.layers import Entry
from poslab.positions.names import require_frozen
from poslab.tasks import Task


def parse_scheme(node: Any, option: str = "pos") -> PositionScheme:
    """Return the scheme that a node, or the name of one, describes.

    Raises SettingError, by the setting's name on the command line, where there is no such class or it refuses a
    setting; and where the class is none that a scheme can be, which is its author's mistake.
    """
    if not isinstance(node, str | dict):
        raise SettingError(option, node, "must be a scheme: the name of one, or a class as _target_ and its settings")
    settings = {TARGET: node} if isinstance(node, str) else dict(node)
    target = str(settings.pop(TARGET, ""))
    class_option = f"{option}.{TARGET}".lstrip(".")
    named_by = class_option if "." in target else option
    if isinstance(node, str) and "." in target:  # `config.trust` looks for classes by that key
        raise SettingError(option, node, f"names a class, which is given as {TARGET}")
    if target in ("", "???"):
        raise SettingError(class_option, "", "must be given (the class of a scheme, or the name of one)")
    if "." not in target:
        options = schemes()
        if target not in options:
            raise SettingError(named_by, target, f"unknown; {suggestion(target, options)}")
        settings = merged(options[target], settings)
        target = settings.pop(TARGET)
    scheme = imported(target, named_by)
    if not (isinstance(scheme, type) and issubclass(scheme, PositionScheme) and scheme is not PositionScheme):
        raise SettingError(named_by, target, "must be a class derived from poslab.positions.PositionScheme")
    require_frozen(scheme, named_by, target)
    settings = {name: _as_list(value, f"{option}.{name}") for name, value in settings.items()}
    try:
        hints = get_type_hints(scheme)
    except NameError:  # of which `checked` tells
        hints = {}
    lists_of_entries = [name for name, hint in hints.items() if hint == tuple[Entry, ...]]
    for name in lists_of_entries:
        if isinstance(settings.get(name), list | tuple):
            places = enumerate(settings[name])
            settings[name] = [_with_its_scheme_apart(item, f"{option}.{name}.{place}") for place, item in places]
    return checked(scheme, settings, option, context=lambda inner: parse_scheme(inner, ""))


def _as_list(value: Any, option: str) -> Any:
    """Return a mapping from the places of a list, {"0": ..., "1": ...}, as that list, any other value as it is."""
    if not isinstance(value, dict) or not value or not all(str(place).isdecimal() for place in value):
        return value
    places = {int(place): item for place, item in value.items()}
    for place in places:
        if place >= len(places):
            problem = "is no place of the list: they are numbers from 0 on"
            raise SettingError(f"{option}.{place}", places[place], problem)
    return [places[place] for place in sorted(places)]


def _with_its_scheme_apart(entry: Any, option: str) -> Any:
    """{_target_: NAME, base: 500, window: 64} -> {of: {_target_: NAME, base: 500}, window: 64}."""
    if not isinstance(entry, dict):
        return entry if isinstance(entry, Entry) else {"of": entry}
    window = {name: value for name, value in entry.items() if name == "window"}
    if isinstance(window.get("window"), bool | float):  # pydantic converts these, as `checked` does nowhere
        raise SettingError(f"{option}.window", window["window"], "must be a whole number or null")
    return {"of": {name: value for name, value in entry.items() if name != "window"}, **window}


def node_of(scheme: PositionScheme) -> dict[str, Any]:
    """Return the node of a scheme, the inverse of `parse_scheme`: every setting, defaults included, in plain values."""
    node: dict[str, Any] = {TARGET: full_name(type(scheme))}
    return node | {name: _plain(value) for name, value in _settings_of(scheme).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Entry):
        return node_of(value.of) | {"window": value.window}
    return node_of(value) if isinstance(value, PositionScheme) else copy.copy(value)


def classes(scheme: PositionScheme) -> list[type]:
    """Return the class of a scheme, and those of the schemes among its settings, each once."""
    scheme_classes = [type(scheme)]
    for value in _settings_of(scheme).values():
        for item in value if isinstance(value, tuple) else (value,):
            inner = item.of if isinstance(item, Entry) else item
            scheme_classes += classes(inner) if isinstance(inner, PositionScheme) else []
    return list(dict.fromkeys(scheme_classes))


def _settings_of(scheme: PositionScheme) -> dict[str, Any]:
    """Return the values of its fields; a bare PositionScheme is no dataclass and has none."""
    fields: Any = dataclasses.fields(scheme) if dataclasses.is_dataclass(scheme) else ()
    return {field.name: getattr(scheme, field.name) for field in fields}


def parse_task(node: Mapping[str, Any], typed: Collection[str] = ()) -> Task:
    """Return the task that a `data` node describes. Raises SettingError for another class, or settings it refuses.

    typed: the settings of the command line, by their names there.
    """
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
    text_settings, own = ({field.name for field in dataclasses.fields(schema)} for schema in (DataConfig, task))
    for name, value in settings.items():
        if name in text_settings - own and f"data.{name}" in typed:
            raise SettingError(f"data.{name}", value, "a text has this setting, a task doesn't")
    return checked(task, settings, "data", known_settings)
