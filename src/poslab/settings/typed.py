"""Plain values from yaml or the command line, as a checked dataclass; knows no setting by name."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigTypeError, ValidationError

from poslab.errors import SettingError, suggestion

Schema = TypeVar("Schema")
Parser = Callable[[Any, str], Any]
_FLAGS = ("true", "false", "yes", "no", "on", "off", "1", "0")


def typed(schema: type[Schema], values: Any, group: str, parsers: Mapping[type, Parser] | None = None) -> Schema:
    """An instance of the dataclass, every value of the type that its field has; OmegaConf converts and judges.

    parsers: what makes the value of a field that has one of these types, of what is given and the setting's name.
    """
    prefix = f"{group}." if group else ""
    hints = {f.name: get_type_hints(schema)[f.name] for f in dataclasses.fields(schema)}  # type: ignore[arg-type]
    parsed_by = {name: parse for kind, parse in (parsers or {}).items() for name in hints if kind in kinds(hints[name])}
    node = _defaults(schema, prefix, without=parsed_by)
    made: dict[str, Any] = {}
    for name, value in mapping(values, group).items():
        if name not in hints:
            raise SettingError(f"{prefix}{name}", value, f"unknown setting; {suggestion(name, hints)}")
        if isinstance(value, str) and value == "???":  # a mandatory value that nobody gave
            continue
        if name in parsed_by:
            is_none = value is None and NoneType in kinds(hints[name])
            made[name] = None if is_none else parsed_by[name](value, f"{prefix}{name}")
            continue
        if _is_text(value, hints[name]):
            made[name], value = value, type(value)()  # kept from OmegaConf, which would look for ${name} in it
        try:
            if bool in kinds(hints[name]) and value is not None and str(value).lower() not in _FLAGS:
                raise ValidationError  # OmegaConf takes every number but 0 for true
            if isinstance(value, str) and "${" in value:
                raise ValidationError  # it would look for the value of that name
            node[name] = value
        except (ValidationError, ConfigTypeError):
            raise SettingError(f"{prefix}{name}", value, f"must be {in_words(hints[name])}") from None
        if isinstance(node[name], float) and not math.isfinite(node[name]):
            raise SettingError(f"{prefix}{name}", value, "must be a finite number")
    missing = sorted(OmegaConf.missing_keys(node) | (_mandatory(schema) & parsed_by.keys() - made.keys()))
    if missing:
        raise SettingError(f"{prefix}{missing[0]}", "", f"must be given ({in_words(hints[missing[0]])})")
    try:
        arguments: Any = OmegaConf.to_container(node)
        return schema(**(arguments | made))
    except SettingError as error:
        raise (error.prefixed(group) if group else error) from None


def _defaults(schema: type, prefix: str, without: Collection[str]) -> DictConfig:
    """The fields of a dataclass with their defaults, ready to be changed."""
    known: list[Any] = [
        (f.name, get_type_hints(schema)[f.name], _field(f)) for f in dataclasses.fields(schema) if f.name not in without
    ]
    try:
        node: DictConfig = OmegaConf.structured(dataclasses.make_dataclass("Settings", known, kw_only=True))
    except ValidationError as error:
        problem = "has a type that no setting can have; valid: bool, int, float, str, list[...], each also | None"
        raise SettingError(f"{prefix}{error.full_key or schema.__name__}", "", problem) from error
    return node


def _field(like: dataclasses.Field[Any]) -> Any:
    """A field with the same default; those of a class can't serve another."""
    return dataclasses.field(default=like.default, default_factory=like.default_factory)


def _mandatory(schema: type) -> set[str]:
    return {f.name for f in dataclasses.fields(schema) if f.default is f.default_factory is dataclasses.MISSING}


def escaped(text: str) -> str:
    """The text as OmegaConf gives it back unchanged: it would look for the value of ${name}. A backslash prevents that,
    and is itself one of two before it."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def mapping(values: Any, group: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise SettingError(group, values, f"must be a group of settings, not a single value; see configs/{group}")
    return values


def _is_text(value: Any, hint: Any) -> bool:
    """Whether it is text, or a list of texts, where the field takes just that."""
    if isinstance(value, list):
        return list[str] in kinds(hint) and all(isinstance(item, str) for item in value)
    return isinstance(value, str) and str in kinds(hint)


def kinds(hint: Any) -> tuple[Any, ...]:
    """int | None -> (int, NoneType)."""
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def in_words(hint: Any) -> str:
    """int | None -> "a whole number or null"."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    words |= {list[int]: "a list of whole numbers such as [64,128]", list[str]: "a list such as [one,two]"}
    words |= {dict[str, Any]: "a group of values"}
    return " or ".join(words.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds(hint))
