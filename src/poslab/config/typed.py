"""Conversion of plain values, from yaml or the command line, to a checked dataclass; knows no setting by name."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from poslab.config.roles import Limited
from poslab.errors import SettingError, suggestion

Schema = TypeVar("Schema")
Parser = Callable[[Any, str], Any]
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_CONVERTED_FROM = {int: (int, str), float: (float, int, str), str: (str, int, float, bool)}


def typed(schema: type[Schema], values: Any, group: str, parsers: Mapping[type, Parser] | None = None) -> Schema:
    """Return an instance of the dataclass, every value converted to the type of its field.

    group: what stands before the settings' names in messages. parsers: by type, what makes a field of that type, or
    each item of a list of it, of a plain value and the setting's name. Raises SettingError for the first setting that
    is unknown, missing, of the wrong type or outside its limits.
    """
    prefix, parsers = f"{group}." if group else "", parsers or {}
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    known = get_type_hints(schema)
    hints = {name: known[name] for name in fields}
    for name, hint in hints.items():
        if not all(_is_possible(kind) or kind in parsers for kind in kinds(hint)):
            problem = "has a type that no setting can have; valid: bool, int, float, str, list[...], each also | None"
            raise SettingError(f"{prefix}{name}", "", problem)
    if not isinstance(values, dict):
        raise SettingError(group, values, f"must be a group of settings, not a single value; see configs/{group}")
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            raise SettingError(f"{prefix}{name}", value, f"unknown setting; {suggestion(name, hints)}")
        if value != "???":  # a mandatory value that nobody gave
            arguments[name] = _converted(value, hints[name], f"{prefix}{name}", parsers)
    for name, field in sorted(fields.items()):
        if name not in arguments and field.default is field.default_factory is dataclasses.MISSING:
            raise SettingError(f"{prefix}{name}", "", f"must be given ({in_words(hints[name])})")
    try:
        return schema(**arguments)
    except SettingError as error:
        raise (error.prefixed(group) if group else error) from None
    except ValueError as error:  # of a class that somebody else wrote
        raise SettingError(group, full_name(schema), f"refuses its settings: {error}") from error


def imported(target: str, option: str) -> Any:
    """Return the object of that full name. Raises SettingError, for the option that gives it, where that fails."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except SettingError as error:  # of a class that breaks the contract of its kind
        raise SettingError(option, target, f"{error.value} {error.problem}") from error
    except Exception as error:  # whatever the import of somebody's file raises
        raise SettingError(option, target, f"can't be imported: {error}".splitlines()[0]) from error


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_possible(kind: Any) -> bool:
    return kind in (Any, NoneType, bool, *_CONVERTED_FROM) or get_origin(kind) is list or is_group(kind)


def _converted(value: Any, hint: Any, option: str, parsers: Mapping[type, Parser]) -> Any:
    """Convert a value to the first type of the hint that takes it."""
    if value is None and NoneType in kinds(hint):
        return None
    for kind in kinds(hint):
        if kind in parsers:
            return parsers[kind](value, option)
        if (parser := parsers.get(_item(kind))) and isinstance(value, list):
            return [parser(item, f"{option}[{number}]") for number, item in enumerate(value)]
        if is_group(kind) and isinstance(value, dict):
            return typed(kind, value, option, parsers)
        try:
            made = _as(kind, value)
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(made, float) and not math.isfinite(made):
            raise SettingError(option, value, "must be a finite number")
        return made
    raise SettingError(option, value, f"must be {in_words(hint)}")


def _item(kind: Any) -> Any:
    """list[int] -> int."""
    return get_args(kind)[0] if get_origin(kind) is list else None


def _as(kind: Any, value: Any) -> Any:
    """Convert to one type. Raises KeyError, TypeError or ValueError where that can't be."""
    if kind is Any:
        return value
    if get_origin(kind) is list and isinstance(value, list):
        return [_as(_item(kind), item) for item in value]
    if kind is bool:
        return _FLAGS[str(value).lower()]
    if type(value) not in _CONVERTED_FROM[kind]:
        raise TypeError
    return kind(value)


def is_group(kind: Any) -> bool:
    """True if values of that type are groups of settings themselves."""
    return isinstance(kind, type) and issubclass(kind, Limited)


def kinds(hint: Any) -> tuple[Any, ...]:
    """int | None -> (int, NoneType)."""
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def in_words(hint: Any) -> str:
    """int | None -> "a whole number or null"."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    words |= {list[int]: "a list of whole numbers such as [64,128]", list[str]: "a list such as [one,two]"}
    words |= {dict[str, Any]: "a group of values"}
    words |= {kind: "a list" for kind in kinds(hint) if _item(kind) and kind not in words}
    for kind in filter(is_group, kinds(hint)):
        words[kind] = f"a group of settings ({', '.join(field.name for field in dataclasses.fields(kind))})"
    return " or ".join(words.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds(hint))
