"""Errors for the user: one line, no traceback, and an exit code of their own."""

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """Error that the user can put right. The message is one complete line."""

    exit_code = 2


class RunStopped(UserError):
    """End of a run that had begun well: a full disk, a loss that is no number any more."""

    exit_code = 1


class Diverged(RunStopped):
    """Loss or gradient that became infinite, or no number: a result of the run's settings."""


class SettingError(UserError):
    """Error of one setting, whose value can't work.

    `option` is the name as the raiser knows it ("num_buckets"), empty for all settings of a group together;
    `prefixed("pos")` gives the name as the command line knows it ("pos.num_buckets").
    """

    def __init__(self, option: str, value: Any, problem: str) -> None:
        self.option, self.value, self.problem = option, value, problem
        given = f"{value:g}" if isinstance(value, float) else as_typed(value)
        super().__init__(" ".join(f"{option}={given}: {problem}".splitlines()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.option, self.value, self.problem)  # to pickle it for another process

    def prefixed(self, group: str) -> "SettingError":
        return type(self)(f"{group}.{self.option}".rstrip("."), self.value, self.problem)


class UnknownSetting(SettingError):
    """Error of a setting that its group, or the class chosen for it, doesn't have."""


def as_typed(value: Any) -> str:
    """Write a value as on the command line: null, true, [64,128], {name: value}, plain text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {as_typed(item)}' for name, item in value.items())}}}"
    return f"[{','.join(map(as_typed, value))}]" if isinstance(value, list) else str(value)


def require_at_least(lowest: float, **settings: float | None) -> None:
    """Raise SettingError for the first of the named settings that is below `lowest`; None means "not set"."""
    for option, value in settings.items():
        if value is not None and not value >= lowest:  # "not >=" also refuses NaN
            raise SettingError(option, value, f"must be at least {lowest}")


def require_one_of(choices: Iterable[Any], **settings: Any) -> None:
    """Raise SettingError, naming the nearest choice, for the first of the named settings that is none of `choices`."""
    known = list(choices)
    for option, value in settings.items():
        if value not in known:
            raise SettingError(option, value, f"unknown; {suggestion(str(value), map(str, known))}")


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Suggest names for one that is none of the choices: "did you mean mini? valid: gpt2, mini"."""
    known = list(choices)
    if not known:
        return "there are none here"
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    question = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{question}valid: {', '.join(known)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; of one without a message the name of its class."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def lacks_memory(error: BaseException) -> bool:
    """Return whether the error says that something is too large."""
    words = ("memory", "overflow", "too large")  # the latter two of sizes that no machine has
    return isinstance(error, MemoryError | RuntimeError) and any(word in str(error).lower() for word in words)


@contextmanager
def blamed_on(option: str, owner: object, method: str) -> Iterator[None]:
    """Raise SettingError for whatever the owner's method raises within, but a UserError and a lack of memory.

    It names the method, also of an object of the same kind that the owner calls, and its line: "Mine.rotate
    (my_file.py, line 12)".
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        where, kind = f"{type(owner).__name__}.{method}", type(owner).__mro__[-2]
        if isinstance(error, NotImplementedError) and not str(error):
            raise SettingError(option, where, "is missing") from error
        for frame, line in traceback.walk_tb(error.__traceback__):
            inner, code = frame.f_locals.get("self"), frame.f_code
            if isinstance(inner, kind) and hasattr(kind, code.co_name) and not code.co_name.startswith("_"):
                where = f"{type(inner).__name__}.{code.co_name} ({Path(code.co_filename).name}, line {line})"
        words = f": {error}" if str(error) else ""
        raise SettingError(option, where, f"raises {type(error).__name__}{words}") from error


def described(value: Any) -> str:
    """Return the shape and dtype of a tensor, or the type of anything else, for a message."""
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
