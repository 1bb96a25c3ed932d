"""Command lines: parsed for all commands but train, and written as this program was called, for messages and pages.

    poslab evaluate ckpt=RUN lengths=64,128      or      python scripts/evaluate.py ckpt=RUN lengths=64,128

Settings are `name=value`, typed by the fields of a dataclass, with nothing to quote. A text, a path included, is what
stands after the first `=`; `null` means "not set" where a field takes that. Lists are written `a,b` or `[a,b]`. A field
with `text=True` takes everything, `null` too, as plain text; if it is a list, each `name=value` adds one. One whose
type is a dataclass itself, a group, takes the values of its fields from each `name.field=value`. One of SCHEME takes a
scheme from `name=scheme`, and its settings from each `name.setting=value`. What has no `=` is the value of the one
field with `bare=True`, or one of its list.
"""

import dataclasses
import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from poslab.checked import Checked
from poslab.config.checking import checked
from poslab.config.files import BUNDLED
from poslab.config.nodes import TARGET
from poslab.errors import UserError, as_typed, nearest

Schema = TypeVar("Schema")
NAME = "poslab"
SCHEME = dict[str, str]  # settings of a scheme as they are typed, {"_target_": NAME, "of.base": "500"}


def parse_line(schema: type[Schema], arguments: Sequence[str]) -> Schema:
    """Return the dataclass with the values of a command line. Raises UserError for the first that it refuses."""
    values: dict[str, Any] = {}
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    hints = get_type_hints(schema)
    alone = next((field.name for field in fields.values() if field.metadata.get("bare")), None)
    for number, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        stands_alone = not separator or (name not in fields and os.path.exists(argument))  # a path may have an "="
        if alone and stands_alone and not argument.startswith("-"):
            name, separator, value = alone, "=", argument
        if argument.startswith("-"):
            raise UserError(flag_problem(arguments[number:], fields))
        if not separator:
            raise UserError(f"{argument}: not of the form option=value")
        group, _, inner = name.partition(".")
        if hints.get(group) == SCHEME:
            if not inner and TARGET in values.get(group, {}):
                raise UserError(f"{argument}: name one scheme")
            values.setdefault(group, {})[inner or TARGET] = value
        elif inner and (schema_within := _group_in(hints.get(group))):
            hint = get_type_hints(schema_within).get(inner, str)
            values.setdefault(group, {})[inner] = _value(value, hint)
        elif name not in fields:
            values[name] = value  # refused, with a suggestion, by `checked`
        elif stands_alone and name in values:
            if not {list[str]} & set(_kinds(hints[name])):
                problem = (
                    f"{name} is {values[name]} already, and one; {_typed_with_name(argument, fields, hints, values)}"
                )
                raise UserError(f"{argument}: {problem}")
            values[name] = [*values[name], *_value(value, hints[name])]
        elif not fields[name].metadata.get("text"):
            values[name] = _value(value, hints[name])
        elif hints[name] == list[str]:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return checked(schema, values, "")


def flag_problem(arguments: Sequence[str], settings: Iterable[str]) -> str:
    """Return the line for a flag that there isn't, the first of these arguments: the setting that it stands for, with
    its value, which may be the next argument."""
    flag, separator, value = arguments[0].partition("=")
    name = nearest(flag.lstrip("-").replace("-", "_"), settings)
    if name is None:
        return f"{arguments[0]}: unknown flag; --help shows what there is"
    if not separator and len(arguments) > 1 and not arguments[1].startswith("-") and "=" not in arguments[1]:
        value = arguments[1]
    setting = f"{name}={shlex.quote(value) if value else 'VALUE'}"
    return f"{arguments[0]}: unknown flag; settings are typed without dashes: {setting}"


def _typed_with_name(word: str, fields: Mapping[str, Any], hints: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return what to type in place of a second word without a name: numbers are the first setting that takes them, a
    path is a path, anything else the text that a command needs."""
    free = [name for name in fields if name not in values]
    if word in fields:
        return f"{word}=VALUE sets {word}"
    required = [
        name for name in free if fields[name].metadata.get("text") or fields[name].default is dataclasses.MISSING
    ]
    if re.fullmatch(r"\[?\d+(,\d+)*\]?", word):
        meant = [name for name in free if {list[int], int} & {*_kinds(hints[name])}]
    elif os.path.exists(word):
        meant = [name for name in free if name.endswith("path")]
    else:
        meant = [name for name in required if {str, list[str]} & {*_kinds(hints[name])}]
    if not meant or "=" in word:
        return "other settings are typed as NAME=VALUE"
    return f"did you mean {meant[0]}={shlex.quote(word)}?"


def help_text(schema: type) -> str:
    """Return the dataclass's docstring, and every setting with its default and its help."""
    lines = {}
    for field in dataclasses.fields(schema):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        shown = "???" if default is dataclasses.MISSING else as_typed(default)
        alone = "may stand without its name; " if field.metadata.get("bare") else ""
        lines[f"{field.name}: {shown}"] = alone + field.metadata.get("help", "")
    width = max(map(len, lines))
    settings = "\n".join(f"{line:<{width}}  {words}".rstrip() for line, words in lines.items())
    return f"{inspect.getdoc(schema)}\n\nSettings (name=value) and their defaults\n{settings}"


def _kinds(hint: Any) -> tuple[Any, ...]:
    """int | None -> (int, NoneType)."""
    return get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)


def _group_in(hint: Any) -> type | None:
    """Return the dataclass of settings that a field of this type takes, if any."""
    return next((kind for kind in _kinds(hint) if isinstance(kind, type) and issubclass(kind, Checked)), None)


def _value(text: str, hint: Any) -> Any:
    """Return null and lists as such; other values as text, which `checked` converts to the field's type."""
    if text == "null" and NoneType in _kinds(hint):
        return None
    if list[int] in _kinds(hint) and not text:  # refused by `checked`; an empty list is []
        return text
    if not {list[int], list[str]} & set(_kinds(hint)):
        return text
    if os.path.exists(os.path.expanduser(text)):  # a path with a comma or in brackets is one
        return [text]
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return [part.strip() for part in bare.split(",") if part.strip()]


def argv_of(command: str, *arguments: str) -> list[str]:
    """Return sys.argv of a command that is called as this one was."""
    called = Path(sys.argv[0])
    if _is_script(called):
        return [str(called.with_name(f"{command}.py")), *arguments]
    return [sys.argv[0], command, *arguments]


def command_line(command: str, *arguments: str) -> str:
    """Return what to type for a command that is called as this one was, quoted for a shell."""
    program = ["python", argv_of(command)[0]] if _is_script(Path(sys.argv[0])) else [NAME, command]
    return shlex.join([*program, *arguments])


def as_called(examples: str) -> str:
    """Return a text with indented examples `poslab COMMAND ...`, each as it is to be typed."""
    return re.sub(rf"^( +){NAME} (\w+)", lambda match: match[1] + command_line(match[2]), examples, flags=re.MULTILINE)


def _is_script(called: Path) -> bool:
    return called.suffix == ".py" and called.resolve().parent == BUNDLED / "scripts"
