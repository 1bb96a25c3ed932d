"""Command lines of all commands but train: `name=value`, typed by the fields of a dataclass, with nothing to quote.

A text, a path included, is what stands after the first `=`; `null` means "not set" where a field takes that. Lists are
written `a,b` or `[a,b]`. A field with `text=True` takes everything, `null` too, as plain text; if it is a list, each
`name=value` adds one. One with `inner=True` takes `inner=value` from each `name.inner=value`; one whose type is a
dataclass itself, a group, the values of its fields in the same way.
"""

import dataclasses
import inspect
import os
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any, TypeVar, get_type_hints

from poslab.config.typed import is_group, kinds, typed
from poslab.errors import UserError, as_typed

Schema = TypeVar("Schema")


def parse_line(schema: type[Schema], arguments: Sequence[str]) -> Schema:
    """Return the dataclass with the values of a command line. Raises UserError for the first that it refuses."""
    values: dict[str, Any] = {}
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    hints = get_type_hints(schema)
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if argument.startswith("-"):
            raise UserError(f"{argument}: unknown flag; --help shows what there is")
        if not separator:
            raise UserError(f"{argument}: not of the form option=value")
        group, _, inner = name.partition(".")
        if inner and group in fields and fields[group].metadata.get("inner"):
            values.setdefault(group, []).append(f"{inner}={value}")
        elif inner and (schemas := [kind for kind in kinds(hints.get(group)) if is_group(kind)]):
            hint = get_type_hints(schemas[0]).get(inner, str)
            values.setdefault(group, {})[inner] = _value(value, hint)
        elif name not in fields:
            values[name] = value  # refused, with a suggestion, by `typed`
        elif not fields[name].metadata.get("text"):
            values[name] = _value(value, hints[name])
        elif hints[name] == list[str]:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return typed(schema, values, "")


def given_settings(arguments: Iterable[str]) -> dict[str, str]:
    """Return the settings of a command line, Hydra's `+name=value` included, as text."""
    return dict(argument.lstrip("+~").split("=", 1) for argument in arguments if "=" in argument)


def help_text(schema: type) -> str:
    """Return the dataclass's docstring, and every setting with its default and its help."""
    lines = {f"{field.name}: {_default(field)}": field.metadata.get("help", "") for field in dataclasses.fields(schema)}
    width = max(map(len, lines))
    settings = "\n".join(f"{line:<{width}}  {words}".rstrip() for line, words in lines.items())
    return f"{inspect.getdoc(schema)}\n\nSettings (name=value) and their defaults\n{settings}"


def _value(text: str, hint: Any) -> Any:
    """Return null and lists as such; other values as text, which `typed` converts to the field's type."""
    if text == "null" and NoneType in kinds(hint):
        return None
    if not {list[int], list[str]} & set(kinds(hint)):
        return text
    if os.path.exists(os.path.expanduser(text)):  # a path with a comma or in brackets is one
        return [text]
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return [part.strip() for part in bare.split(",") if part.strip()]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return as_typed(field.default_factory())
    return "???" if field.default is dataclasses.MISSING else as_typed(field.default)
