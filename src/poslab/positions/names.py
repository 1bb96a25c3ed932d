"""Checks of the names in a scheme's class: a misspelt hook would never be called, and nobody would notice."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

from poslab.errors import SettingError


def require_frozen(cls: type, option: str, value: str) -> None:
    """Raise SettingError, for `option` and its value, unless the class itself is a frozen dataclass."""
    parameters = vars(cls).get("__dataclass_params__")
    if not (parameters and parameters.frozen):
        raise SettingError(option, value, "a scheme must be a frozen dataclass: @dataclass(frozen=True)")


def check_names(
    cls: type, hooks: Mapping[str, Sequence[str]], further: Mapping[str, str], attributes: Sequence[str]
) -> None:
    """Raise SettingError for a class with names that only look like the contract's.

    hooks: the arguments of each. further: one that a hook may take besides. attributes: of a scheme, beside its hooks.
    """
    settings = inspect.get_annotations(cls)
    inherited = {f.name for base in cls.__mro__[1:] if is_dataclass(base) for f in fields(base)}
    for name, member in vars(cls).items():
        problem, near = "", get_close_matches(name, attributes, n=1, cutoff=0.85)
        method = getattr(member, "__func__", member)  # of a static method
        if name in inherited and name not in settings:
            problem = "is a setting of the class it derives from: a new default needs its type, too"
        elif near and name not in (*attributes, *settings):
            problem = f"is nothing that a scheme has (did you mean {near[0]}?)"
        elif name in hooks and inspect.isfunction(member):
            signature, besides = inspect.signature(member), further.get(name, "")
            try:
                signature.bind(*hooks[name], **({besides: None} if besides in signature.parameters else {}))
            except TypeError:
                problem = f"takes other arguments than the hook: ({', '.join(hooks[name])})"
        elif inspect.isfunction(method) and name not in hooks and not name.startswith("_"):
            near = get_close_matches(name, hooks, n=1, cutoff=0.75)
            if near or {"tables", "shape"} & inspect.signature(method).parameters.keys():
                meant = f" (did you mean {near[0]}?)" if near else ""
                problem = f"is no hook{meant}; hooks are {', '.join(hooks)}, other methods begin with _"
        if problem:
            raise SettingError("pos", f"{cls.__name__}.{name}", problem)
