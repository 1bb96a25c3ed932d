"""Plain values as a checked dataclass, by pydantic, whose errors become those of one setting; and classes by name."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from poslab.errors import SettingError, UnknownSetting, suggestion

Schema = TypeVar("Schema")

# What pydantic's kinds of errors say, in the words of a command line.
_WORDS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "string": "text",
    "literal": "{expected}",
    "list": "a list such as {items}",
    "tuple": "a list such as {items}",
    "dataclass": "a group of settings ({settings})",
}


def checked(
    schema: type[Schema],
    values: Any,
    group: str,
    elsewhere: Callable[[], Iterable[str]] = tuple,
    context: Any = None,
) -> Schema:
    """Return an instance of the dataclass, every value converted to the type of its field.

    group: what stands before the settings' names in messages. elsewhere: gives the names of settings of other groups,
    which may be meant. context: for the fields that need one, as schemes within schemes do. Raises SettingError for the
    first setting that is unknown, missing, of the wrong type or outside its limits.
    """
    from pydantic import PydanticUserError, ValidationError

    if not isinstance(values, Mapping):
        raise SettingError(group, values, f"must be a group of settings, not a single value; see configs/{group}")
    values_set = {str(name): value for name, value in values.items() if value != "???"}  # of which nobody gave a value
    try:
        adapter: Any = _adapter(schema)  # type: ignore[arg-type]
        # Makes the object, too; what its __post_init__ raises becomes the `cause` of _setting_error.
        return adapter.validate_python(values_set, context=context)
    except ValidationError as error:
        # In the order of the values; what is missing comes last.
        order = {name: place for place, name in enumerate(values_set)}
        errors = sorted(error.errors(include_url=False), key=lambda detail: _place(detail, order))
        raise _setting_error(errors, schema, group, elsewhere) from None
    except (PydanticUserError, NameError) as error:  # an annotation of somebody's class
        problem = f"has settings that can't be checked: {error}".splitlines()[0]
        raise SettingError(group, full_name(schema), problem) from error


def _place(error: Any, order: Mapping[str, int]) -> tuple[bool, int, bool]:
    """Return by what errors are sorted: an unknown setting comes before others within the same one."""
    first = str(error["loc"][0]) if error["loc"] else ""
    return error["type"] == "missing", order.get(first, 0), error["type"] != "unexpected_keyword_argument"


@cache
def _adapter(schema: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(schema)


def _setting_error(errors: list[Any], schema: type, group: str, elsewhere: Callable[[], Iterable[str]]) -> SettingError:
    """Return the first of pydantic's errors as that of one setting, by its name on the command line."""
    first = errors[0]
    names, owner = _names(first, schema)
    cause, option = first.get("ctx", {}).get("error"), ".".join(filter(None, [group, *names]))
    if isinstance(cause, SettingError):  # of a class that has looked at its settings
        return cause.prefixed(option) if option else cause
    if cause is not None:
        return SettingError(group, full_name(schema), f"refuses its settings: {cause}")
    dataclass_fields: Any = dataclasses.fields(owner)
    fields = {field.name: field for field in dataclass_fields if field.metadata.get("given", True)}
    if first["type"] == "unexpected_keyword_argument":
        others = [name for name in elsewhere() if not name.startswith(f"{group}.")]
        options = {name: f"{group}/{name}" for name in fields if f"{group}/{name}" in others}
        valid = [options.get(name, name) for name in fields]
        return UnknownSetting(names[-1], first["input"], valid, others, option.removesuffix(names[-1]))
    if first["type"] == "missing":
        words = fields[names[-1]].metadata.get("help")
        if not words:
            hint = get_type_hints(owner)[names[-1]]
            kind = getattr(hint, "__name__", str(hint))
            words = _WORDS.get(kind, kind)
        return SettingError(option, "", f"must be given ({words})")
    if first["type"] == "literal_error":
        choices = first["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return SettingError(option, first["input"], f"unknown; {suggestion(str(first['input']), choices)}")
    # A value may be of several types, each of which has refused it.
    hint = get_type_hints(owner).get(names[-1]) if names else None
    same = [error for error in errors if _names(error, schema)[0] == names]
    words = [_words(error, hint) for error in same]
    if not all(words):
        return SettingError(option, first["input"], first["msg"])
    limited = any("ctx" in error and error["type"] != "literal_error" for error in same)
    if NoneType in get_args(hint) and not limited:
        words.append("null")
    return SettingError(option, first["input"], f"must be {' or '.join(dict.fromkeys(words))}")


def _words(error: Any, hint: Any) -> str:
    """Return what a value must be, by an error's kind or the beginning of it, int_parsing -> a whole number; of a list
    or a group as the type of its field says."""
    kind = error["type"] if error["type"] in _WORDS else error["type"].partition("_")[0]
    group = _dataclass_in(hint)
    settings = ", ".join(field.name for field in dataclasses.fields(group)) if group else ""
    items = "[64,128]" if list[int] in (hint, *get_args(hint)) else "[one,two]"
    return _WORDS.get(kind, "").format(**error.get("ctx", {}), settings=settings, items=items).replace("'", "")


def _names(error: Any, schema: type) -> tuple[list[str], type]:
    """Return the names on the way to an error, and the dataclass that the last is of.

    pydantic's locations also name branches of a union, by their types; names are those of fields and the places of
    lists. The scheme `of` an entry of a list stands at the entry's place.
    """
    names: list[str] = []
    owner, inner = schema, schema
    for part in error["loc"]:
        fields = {field.name for field in dataclasses.fields(inner)} if inner else set()
        if isinstance(part, int):
            names.append(str(part))
        elif part == "of" and names and names[-1].isdecimal():
            continue
        elif part in fields:
            names.append(part)
            owner, inner = inner, _dataclass_in(get_type_hints(inner)[part])
        elif error["type"] == "unexpected_keyword_argument":
            names.append(part)
            owner = inner
    return names, owner


def _dataclass_in(hint: Any) -> Any:
    """tuple[Entry, ...] -> Entry; None where values of the type have no fields."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_dataclass_in, get_args(hint))), None)


def imported(target: str, option: str) -> Any:
    """Return the object of that full name. Raises SettingError, for the option that gives it, where that fails."""
    module, _, name = target.rpartition(".")
    try:
        loaded = importlib.import_module(module)
        if not hasattr(loaded, name):  # as where a file has the name of a module of Python's library
            # Of a file those that it makes, not those that it imports.
            made = [other for other, value in vars(loaded).items() if getattr(value, "__module__", "") == module]
            near = suggestion(name, made or [other for other, value in vars(loaded).items() if callable(value)])
            meant = f"; {near}" if near.startswith("did you mean") else ""
            raise ImportError(f"{getattr(loaded, '__file__', None) or 'a part of Python'} has no {name}{meant}")
        return getattr(loaded, name)
    except SettingError as error:  # of a class that breaks the contract of its kind
        raise SettingError(option, target, f"{error.value} {error.problem}") from error
    except Exception as error:  # whatever the import of somebody's file raises
        problem = f"can't be imported: {error}".splitlines()[0]
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("lightning"):
            problem += "; poslab has Lightning as pytorch_lightning, whose classes its parts are derived from"
        raise SettingError(option, target, problem) from error


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
