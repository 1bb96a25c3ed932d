"""Plain values from yaml or the command line, as a checked dataclass; knows no setting by name."""

import dataclasses
import math
import re
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import ConfigTypeError, ValidationError

from poslab.errors import SettingError, suggestion

Schema = TypeVar("Schema")
_FLAGS = ("true", "false", "yes", "no", "on", "off", "1", "0")


def typed(schema: type[Schema], values: Any, group: str) -> Schema:
    """An instance of the dataclass, every value of the type that its field has; OmegaConf converts and judges."""
    hints = {f.name: get_type_hints(schema)[f.name] for f in dataclasses.fields(schema)}  # type: ignore[arg-type]
    node = OmegaConf.structured(schema)
    OmegaConf.set_readonly(node, False)
    prefix = f"{group}." if group else ""
    texts: dict[str, Any] = {}
    for name, value in mapping(values, group).items():
        if name not in hints:
            raise SettingError(f"{prefix}{name}", value, f"unknown setting; {suggestion(name, hints)}")
        if value == "???":  # a mandatory value that nobody gave
            continue
        if _is_text(value, hints[name]):
            texts[name], value = value, type(value)()  # kept from OmegaConf, which would look for ${name} in it
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
    missing = sorted(OmegaConf.missing_keys(node))
    if missing:
        raise SettingError(f"{prefix}{missing[0]}", "", f"must be given ({in_words(hints[missing[0]])})")
    try:
        arguments: Any = OmegaConf.to_container(node)
        return schema(**(arguments | texts))
    except SettingError as error:
        raise (error.prefixed(group) if group else error) from None


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
    return " or ".join(words.get(kind, str(kind)) for kind in kinds(hint))
