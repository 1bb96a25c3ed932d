"""Checks of a task from outside poslab before anything trains on it: each method returns what `base` says.

Whoever writes a task and miscounts learns here which method gave what and what it must give, not from an error deep in
a model, after the training, or from none at all.
"""

from __future__ import annotations

import inspect
from difflib import get_close_matches

import torch
from torch import Tensor

from poslab.errors import SettingError, blamed_on, described
from poslab.tasks.base import IGNORED, Examples, Task

_METHODS = ("symbols", "tokens", "reach", "batch", "parts", "derived", "shifts")
_COUNT = 3  # examples


def check_task(task: Task) -> None:
    """Raise SettingError, naming the method, for the first that fails or returns something wrong."""
    _check_names(type(task))
    with blamed_on("data", task, "shifts"):
        variants = {"": task, **task.shifts()}
    for ending, variant in variants.items():
        with blamed_on("data", variant, "symbols"):
            names = variant.symbols
        fits = isinstance(names, tuple) and len(set(names)) == len(names) > 0 and all(type(n) is str for n in names)
        problem = f"must be a @property that gives a tuple of one or more different names, not {names!r:.80}"
        _require(fits, variant, "symbols", problem)
        problem = f"{ending} has {len(names)} symbols, and the task {len(task.symbols)}"
        _require(len(names) == len(task.symbols), task, "shifts", problem)
        for length in sorted({*variant.lengths[:2], variant.lengths[-1], *variant.test_lengths}):
            _check_examples(variant, length, len(names))


def _check_names(cls: type[Task]) -> None:
    """Raise SettingError for a mistyped method, which would never be called."""
    for own in cls.__mro__[: cls.__mro__.index(Task)]:
        for name, member in vars(own).items():
            is_known = name.startswith("_") or name in inspect.get_annotations(own) or hasattr(Task, name)
            near = get_close_matches(name, _METHODS, n=1, cutoff=0.75)
            if near and not is_known and (inspect.isfunction(member) or isinstance(member, property)):
                problem = f"is no method of a task (did you mean {near[0]}?); others of your own begin with _"
                raise SettingError("data", f"{own.__name__}.{name}", problem)


def _check_examples(task: Task, length: int, symbols: int) -> None:
    """Check examples of one length, which equal generators must draw alike, and figures derived of a perfect test."""
    with blamed_on("data", task, "batch"):
        examples, again = (task.batch(torch.Generator().manual_seed(1), _COUNT, length) for _ in range(2))
    problem = f"must give Examples(tokens, targets), not {described(examples)}"
    _require(isinstance(examples, Examples), task, "batch", problem)
    with blamed_on("data", task, "tokens"):
        shape, at = (_COUNT, task.tokens(length)), f"at length {length}"
    with blamed_on("data", task, "reach"):
        reach = task.reach(length)
    for (name, ids), other in zip(examples._asdict().items(), again, strict=True):
        if name == "positions" and ids is None:
            continue
        fits = isinstance(ids, Tensor) and tuple(ids.shape) == shape and ids.dtype == torch.int64
        problem = f"{name} must be (count, tokens(length)) = {shape} of int64 {at}, not {described(ids)}"
        _require(fits, task, "batch", problem)
        problem = f"{name} differ between two generators that are equal: draw from `generator` alone"
        _require(other is not None and torch.equal(ids, other), task, "batch", problem)
        ids_there = [int(n) for n in ids.unique() if name != "targets" or n != IGNORED] or [0]
        end = reach if name == "positions" else symbols
        low, high = min(ids_there), max(ids_there)
        problem = f"{name} have {low if low < 0 else high} {at}, but must be from 0 to {end - 1}"
        _require(0 <= low <= high < end, task, "batch", problem)
    asks = bool((examples.targets != IGNORED).any(1).all())
    _require(asks, task, "batch", f"asks nothing in an example {at}: all of its targets are {IGNORED}")
    problem = f"must be at least {shape[1]}, the number of tokens {at}, not {reach}"
    _require(examples.positions is not None or reach >= shape[1], task, "reach", problem)
    with blamed_on("data", task, "parts"):
        parts = task.parts(examples)
    for name, mask in parts.items():
        fits = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape
        _require(fits, task, "parts", f"{name} must be {shape} of bool, not {described(mask)}")
    with blamed_on("data", task, "derived"):
        task.derived({f"{kind}{end}": 1.0 for kind in ("exact", "accuracy") for end in ("", *(f"_{p}" for p in parts))})


def _require(fits: bool, task: Task, method: str, problem: str) -> None:
    if not fits:
        raise SettingError("data", f"{type(task).__name__}.{method}", problem)
