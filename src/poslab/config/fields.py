"""Fields of settings: role, limits and words of --help at the field; conversion of plain values to a checked dataclass.

    threads: int | None = setting(None, role=Role.SPEED, least=1)

The role tells whether a setting decides the result of training, and what else depends on that. A setting without a role
and one that nobody knows decide the result: the careful assumption.
"""

import copy
import dataclasses
import importlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from poslab.errors import SettingError, UnknownSetting, require_one_of, suggestion

MOST_THREADS = 1024  # torch crashes with many thousands
MOST_REMEMBERED = 1_000_000  # tokens
MOST_TOKENS = 12_288  # of a text at each length: two models' difference on them has a standard error below 0.006 nats


class Role(Enum):
    """Purpose of a setting; its consequences are the sets of roles below."""

    RESULT = auto()  # decides the result of training
    SCHEME = auto()  # of the position scheme, which decides it too, and is what comparisons are about
    SEED = auto()  # chance: runs that differ in nothing else form a group
    LENGTH = auto()  # how long to train; a run may be extended
    LOCATION = auto()  # where a text is, or weights to begin with; what counts is the contents, by their hash
    ROUNDING = auto()  # how the same sums are computed: other bits, the same up to rounding
    OUTPUT = auto()  # what a run measures, shows and logs of its training, which is the same to the bit
    SPEED = auto()  # where and how fast a run computes, how often it saves
    COMMAND = auto()  # of the command that starts a run; never in a run's configuration


# Two runs are the same job of a sweep if they agree in all settings but those with these roles.
NOT_IDENTITY = frozenset({Role.LOCATION, Role.OUTPUT, Role.SPEED, Role.COMMAND})
# Two runs can be compared, as schemes at equal conditions, if they agree in all settings but those with these roles.
NOT_COMPARED = NOT_IDENTITY | {Role.SCHEME, Role.SEED, Role.ROUNDING}
# TensorBoard's HPARAMS tab lists all settings but those with these roles.
NOT_SHOWN = frozenset({Role.OUTPUT, Role.SPEED, Role.COMMAND})
# The command that repeats a run on another machine has all settings but those with these roles.
NOT_REPEATED = frozenset({Role.SPEED, Role.COMMAND})
# Settings with these roles may change when a run goes on. Those of rounding may not, as it ends with
# the bits of one that nobody interrupted; they are part of a job's identity, so that a sweep can be over backends.
MAY_CHANGE = frozenset({Role.LENGTH, Role.LOCATION, Role.OUTPUT, Role.SPEED})


def setting(
    default: Any = dataclasses.MISSING,
    *,
    role: Role = Role.RESULT,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    help: str = "",
    text: bool = False,
    bare: bool = False,
    given: bool = True,
) -> Any:
    """Return a dataclass field with more about a setting than its type; a list or dict as default is copied for every
    instance.

    least, above, most, below, choices: limits of the value, or of each in a list; None always is within them.
    help: its words in --help. text: whether the command line's value is plain text, whatever it is.
    bare: whether its value may stand alone. given: whether a command line may give it.
    """
    limits = {"least": least, "above": above, "most": most, "below": below, "choices": choices}
    metadata = limits | {"role": role, "help": help, "text": text, "bare": bare, "given": given}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_NUMERIC_LIMITS = {
    "least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


class Limited:
    """Base of dataclasses whose fields declare limits. Raises SettingError for the first value that is outside."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, limits = getattr(self, field.name), field.metadata
            for item in value if isinstance(value, list) else [value]:
                if item is None or not limits:
                    continue
                if limits["choices"]:
                    require_one_of(limits["choices"], **{field.name: item})
                for limit, (holds, words) in _NUMERIC_LIMITS.items():
                    if limits[limit] is not None and not holds(item, limits[limit]):
                        raise SettingError(field.name, item, f"must be {words} {limits[limit]}")


def roles(schema: type) -> dict[str, Role]:
    """Return the role of each field of a dataclass that a command line may give."""
    fields = [field for field in dataclasses.fields(schema) if field.metadata.get("given", True)]
    return {field.name: field.metadata.get("role", Role.RESULT) for field in fields}


Schema = TypeVar("Schema")
Parser = Callable[[Any, str], Any]
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_CONVERTED_FROM = {int: (int, str), float: (float, int, str), str: (str, int, float, bool)}


def typed(
    schema: type[Schema],
    values: Any,
    group: str,
    parsers: Mapping[type, Parser] | None = None,
    elsewhere: Callable[[], Iterable[str]] = tuple,
) -> Schema:
    """Return an instance of the dataclass, every value converted to the type of its field.

    group: what stands before the settings' names in messages. parsers: by type, what makes a field of that type
    of a plain value and the setting's name. elsewhere: gives the names of settings of other groups, which may be meant.
    Raises SettingError for the first setting that is unknown, missing, of the wrong type or outside its limits.
    """
    prefix, parsers = f"{group}." if group else "", parsers or {}
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    known = get_type_hints(schema)
    hints = {name: known[name] for name in fields}
    for name, hint in hints.items():
        possible = (Any, NoneType, bool, *_CONVERTED_FROM, *parsers)
        if not all(kind in possible or get_origin(kind) in (list, tuple) or is_group(kind) for kind in kinds(hint)):
            problem = "has a type that no setting can have; valid: bool, int, float, str, list[...], each also | None"
            raise SettingError(f"{prefix}{name}", "", problem)
    if not isinstance(values, dict):
        raise SettingError(group, values, f"must be a group of settings, not a single value; see configs/{group}")
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            others = [other for other in elsewhere() if not other.startswith(prefix)]
            meant = suggestion(name, hints, others, prefix)
            raise UnknownSetting(f"{prefix}{name}", value, f"unknown setting; {meant}")
        if value != "???":  # a mandatory value that nobody gave
            arguments[name] = _converted(value, hints[name], f"{prefix}{name}", parsers)
    for name, field in sorted(fields.items()):
        if name not in arguments and field.default is field.default_factory is dataclasses.MISSING:
            words = field.metadata.get("help") or in_words(hints[name])
            raise SettingError(f"{prefix}{name}", "", f"must be given ({words})")
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
        found = importlib.import_module(module)
        if not hasattr(found, name):  # as where a file has the name of a module of Python's library
            near = suggestion(name, [of_file for of_file, value in vars(found).items() if callable(value)])
            meant = f"; {near}" if near.startswith("did you mean") else ""
            raise ImportError(f"{getattr(found, '__file__', None) or 'a part of Python'} has no {name}{meant}")
        return getattr(found, name)
    except SettingError as error:  # of a class that breaks the contract of its kind
        raise SettingError(option, target, f"{error.value} {error.problem}") from error
    except Exception as error:  # whatever the import of somebody's file raises
        problem = f"can't be imported: {error}".splitlines()[0]
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("lightning"):
            problem += "; poslab has Lightning as pytorch_lightning, whose classes its parts are derived from"
        raise SettingError(option, target, problem) from error


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _converted(value: Any, hint: Any, option: str, parsers: Mapping[type, Parser]) -> Any:
    """Convert a value to the first type of the hint that takes it."""
    if value is None and NoneType in kinds(hint):
        return None
    for kind in kinds(hint):
        if kind in parsers:
            return parsers[kind](value, option)
        if get_origin(kind) is tuple:
            return _items(get_args(kind)[0], value, option, parsers)
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


def _items(kind: Any, value: Any, option: str, parsers: Mapping[type, Parser]) -> tuple[Any, ...]:
    """Convert the items of a list, or of a mapping from their places, {"0": ..., "1": ...}, each named by its place."""
    places = {str(place): item for place, item in enumerate(value)} if isinstance(value, list) else value
    if not isinstance(places, dict):
        raise SettingError(option, value, "must be a list such as [one,two]")
    names = [str(place) for place in range(len(places))]
    for place in places.keys() - names:
        raise SettingError(f"{option}.{place}", places[place], "is no place of the list: they are numbers from 0 on")
    return tuple(_converted(places[place], kind, f"{option}.{place}", parsers) for place in names)


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
    words |= {kind: "a list" for kind in kinds(hint) if get_origin(kind) in (list, tuple) and kind not in words}
    for kind in filter(is_group, kinds(hint)):
        words[kind] = f"a group of settings ({', '.join(field.name for field in dataclasses.fields(kind))})"
    return " or ".join(words.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds(hint))
