"""Checks of the names in a scheme's class: a misspelt hook would never be called, and nobody would notice."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from poslab.errors import SettingError

ATTRIBUTES = ("share_layers", "shift_invariant", "samples_each_text", "samples_in_evaluation", "variants")


def require_frozen(cls: type, option: str, value: str) -> None:
    """Raise SettingError, for `option` and its value, unless the class itself is a frozen dataclass."""
    parameters = vars(cls).get("__dataclass_params__")
    if not (parameters and parameters.frozen):
        raise SettingError(option, value, "a scheme must be a frozen dataclass: @dataclass(frozen=True)")


def _check_arguments(cls: type, hook: str, expected: Sequence[str], member: Any) -> None:
    """Raise SettingError for a hook that can't be called as hooks of its name are."""
    try:
        inspect.signature(member).bind(*expected)
    except TypeError:
        raise _bad_name(cls, hook, f"takes other arguments than the hook: ({', '.join(expected)})") from None


def check_names(cls: type, hooks: Mapping[str, Sequence[str]]) -> None:
    """Raise SettingError for a class with misspelt or clashing names; hooks: names with their arguments."""
    settings = inspect.get_annotations(cls)
    inherited = {field.name for base in cls.__mro__[1:] if is_dataclass(base) for field in fields(base)}
    for name, member in vars(cls).items():
        if name in inherited and name not in settings and not name.startswith("_"):
            raise _bad_name(cls, name, "is a setting of the class it derives from: a new default needs its type, too")
        if name in hooks and not callable(member):
            raise _bad_name(cls, name, "hides the hook of that name: call the setting something else")
        if name in hooks and inspect.isfunction(member):
            _check_arguments(cls, name, hooks[name], member)
        near = get_close_matches(name, ATTRIBUTES, n=1, cutoff=0.85)
        if near and name not in (*ATTRIBUTES, *settings):
            raise _bad_name(cls, name, f"is nothing that a scheme has (did you mean {near[0]}?)")
        member = getattr(member, "__func__", member)  # of a static method
        if not inspect.isfunction(member) or name in hooks or name.startswith("_"):
            continue
        near = get_close_matches(name, hooks, n=1, cutoff=0.75)
        if near or {"tables", "shape"} & inspect.signature(member).parameters.keys():
            meant = f" (did you mean {near[0]}?)" if near else ""
            problem = f"is no hook{meant}; hooks are {', '.join(hooks)}, other methods begin with _"
            raise _bad_name(cls, name, problem)
    for name in settings:
        if name in hooks:
            raise _bad_name(cls, name, "hides the hook of that name: call the setting something else")
        if any(inspect.isfunction(vars(base).get(name)) for base in cls.__mro__[1:]):
            raise _bad_name(cls, name, "hides the method of that name: call the setting something else")


def _bad_name(cls: type, name: str, problem: str) -> SettingError:
    return SettingError("pos", f"{cls.__name__}.{name}", problem)
