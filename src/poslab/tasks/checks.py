"""Checks of a task before anything trains on it: each method returns what `base` says.

Whoever writes a task and miscounts learns here which method gave what and what it must give, not from an error deep in
a model, after the training, or from none at all.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from difflib import get_close_matches

from poslab.errors import SettingError, blamed_on, described
from poslab.lazy import torch
from poslab.tasks.base import IGNORED, Examples, Task

METHODS = ("symbols", "tokens", "reach", "batch", "parts", "derived", "shifts")
_COUNT = 3  # examples


def check_task(task: Task) -> None:
    """Raise SettingError, naming the method, for the first that fails or returns something wrong."""
    _check_names(type(task))
    for ending, variant in {"": task, **_shifts(task)}.items():
        count = _check_symbols(variant)
        for length in sorted({*task.lengths[:2], task.lengths[-1], *task.test_lengths}):
            examples = _batch(variant, length)
            _check_examples(variant, examples, length, count)
            _check_figures(variant, examples)
        if ending and count != len(task.symbols):
            raise _wrong(task, "shifts", f"{ending} has {count} symbols, and the task {len(task.symbols)}")


def _check_names(cls: type[Task]) -> None:
    """Raise SettingError for a mistyped method, or a setting that hides a method."""
    for own in cls.__mro__[: cls.__mro__.index(Task)]:
        settings = inspect.get_annotations(own)
        for name, member in vars(own).items():
            known = name.startswith("_") or name in settings or hasattr(Task, name)
            near = get_close_matches(name, METHODS, n=1, cutoff=0.75)
            if near and not known and (inspect.isfunction(member) or isinstance(member, property)):
                problem = f"is no method of a task (did you mean {near[0]}?); others of your own begin with _"
                raise SettingError("data", f"{own.__name__}.{name}", problem)
        for name in settings:
            if name not in inspect.get_annotations(Task) and hasattr(Task, name):
                problem = "hides what tasks have under that name: call the setting something else"
                raise SettingError("data", f"{own.__name__}.{name}", problem)


def _shifts(task: Task) -> Mapping[str, Task]:
    with blamed_on("data", task, "shifts"):
        shifts = task.shifts()
    if not (isinstance(shifts, Mapping) and all(isinstance(shift, Task) for shift in shifts.values())):
        raise _wrong(task, "shifts", f"must give a dict of tasks by name, not {described(shifts)}")
    return shifts


def _check_symbols(task: Task) -> int:
    """Return the number of symbols."""
    with blamed_on("data", task, "symbols"):
        symbols = task.symbols
    if not isinstance(symbols, tuple) or not symbols or not all(isinstance(name, str) for name in symbols):
        given = "none" if symbols == () else described(symbols)
        raise _wrong(task, "symbols", f"must be a @property that gives a tuple of names, one or more, not {given}")
    if len(set(symbols)) < len(symbols):
        twice = next(name for name in symbols if symbols.count(name) > 1)
        raise _wrong(task, "symbols", f"has {twice!r} twice; each symbol needs a name of its own")
    return len(symbols)


def _batch(task: Task, length: int) -> Examples:
    """Return some examples, the same from equal generators. Raises SettingError where they aren't."""
    with blamed_on("data", task, "batch"):
        given = [task.batch(torch.Generator().manual_seed(1), _COUNT, length) for _ in range(2)]
    first, second = given
    if not isinstance(first, Examples):
        raise _wrong(task, "batch", f"must give Examples(tokens, targets), not {described(first)}")
    for name, one, other in zip(Examples._fields, first, second, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and not torch.equal(one, other):
            problem = f"{name} differ between two generators that are equal: draw from `generator` alone"
            raise _wrong(task, "batch", problem)
    return first


def _check_examples(task: Task, examples: Examples, length: int, symbols: int) -> None:
    with blamed_on("data", task, "tokens"):
        tokens = task.tokens(length)
    if type(tokens) is not int:
        raise _wrong(task, "tokens", f"must give a whole number, not {described(tokens)}")
    shape, at = (_COUNT, tokens), f"at length {length}"
    for name, given in examples._asdict().items():
        if name == "positions" and given is None:
            continue
        fits = isinstance(given, torch.Tensor) and tuple(given.shape) == shape and given.dtype == torch.int64
        if not fits:
            problem = f"{name} must be (count, tokens(length)) = {shape} of int64 {at}, not {described(given)}"
            raise _wrong(task, "batch", problem)
    answers = examples.targets[examples.targets != IGNORED]
    for name, ids in (("tokens", examples.tokens), ("targets", answers)):
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < symbols:
            outside = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise _wrong(task, "batch", f"{name} have {outside} {at}, and the {symbols} symbols end at {symbols - 1}")
    if not (examples.targets != IGNORED).any(1).all():
        raise _wrong(task, "batch", f"asks nothing in an example {at}: all of its targets are {IGNORED}")
    with blamed_on("data", task, "reach"):
        reach = task.reach(length)
    last = tokens - 1 if examples.positions is None else int(examples.positions.max())
    if type(reach) is not int or reach <= last:
        raise _wrong(task, "reach", f"must give a whole number above {last}, the last position {at}, not {reach}")
    if examples.positions is not None and int(examples.positions.min()) < 0:
        raise _wrong(task, "batch", f"positions must be 0 or more {at}, not {int(examples.positions.min())}")


def _check_figures(task: Task, examples: Examples) -> None:
    """Check parts, and figures derived of a test in which all is right."""
    with blamed_on("data", task, "parts"):
        parts = task.parts(examples)
    names = ["exact", "accuracy"]
    for name, mask in parts.items():
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != examples.targets.shape:
            shape = tuple(examples.targets.shape)
            raise _wrong(task, "parts", f"{name} must be {shape} of bool, not {described(mask)}")
        names += [f"exact_{name}", f"accuracy_{name}"]
    with blamed_on("data", task, "derived"):
        derived = task.derived(dict.fromkeys(names, 1.0))
    for name, figure in derived.items():
        if not isinstance(figure, int | float) or not math.isfinite(figure):
            raise _wrong(task, "derived", f"{name} must be a finite number, not {figure!r}")


def _wrong(task: Task, method: str, problem: str) -> SettingError:
    return SettingError("data", f"{type(task).__name__}.{method}", problem)
