"""Checks of a task before anything trains on it: each method returns what `base` says.

Whoever writes a task and miscounts learns here which method gave what and what it must give, not from an error deep in
a model, after the training, or from none at all.
"""

from __future__ import annotations

import inspect
from difflib import get_close_matches

import torch

from poslab.errors import SettingError, blamed_on, described
from poslab.tasks.base import IGNORED, Examples, Task

METHODS = ("symbols", "tokens", "reach", "batch", "parts", "derived", "shifts")
_COUNT = 3  # examples


def check_task(task: Task) -> None:
    """Raise SettingError, naming the method, for the first that fails or returns something wrong."""
    _check_names(type(task))
    with blamed_on("data", task, "shifts"):
        variants = {"": task, **task.shifts()}
    for ending, variant in variants.items():
        count = _check_symbols(variant)
        for length in sorted({*task.lengths[:2], task.lengths[-1], *task.test_lengths}):
            examples = _batch(variant, length)
            _check_examples(variant, examples, length, count)
            _check_figures(variant, examples)
        problem = f"{ending} has {count} symbols, and the task {len(task.symbols)}"
        _require(not ending or count == len(task.symbols), task, "shifts", problem)


def _check_names(cls: type[Task]) -> None:
    """Raise SettingError for a mistyped method, which would never be called."""
    for own in cls.__mro__[: cls.__mro__.index(Task)]:
        settings = inspect.get_annotations(own)
        for name, member in vars(own).items():
            known = name.startswith("_") or name in settings or hasattr(Task, name)
            near = get_close_matches(name, METHODS, n=1, cutoff=0.75)
            if near and not known and (inspect.isfunction(member) or isinstance(member, property)):
                problem = f"is no method of a task (did you mean {near[0]}?); others of your own begin with _"
                raise SettingError("data", f"{own.__name__}.{name}", problem)


def _check_symbols(task: Task) -> int:
    """Return the number of symbols."""
    with blamed_on("data", task, "symbols"):
        names = task.symbols
    fits = isinstance(names, tuple) and len(set(names)) == len(names) > 0 and all(isinstance(n, str) for n in names)
    problem = f"must be a @property that gives a tuple of one or more different names, not {names!r:.80}"
    _require(fits, task, "symbols", problem)
    return len(names)


def _batch(task: Task, length: int) -> Examples:
    """Return some examples, the same from equal generators. Raises SettingError where they aren't."""
    with blamed_on("data", task, "batch"):
        first, second = (task.batch(torch.Generator().manual_seed(1), _COUNT, length) for _ in range(2))
    _require(isinstance(first, Examples), task, "batch", f"must give Examples(tokens, targets), not {described(first)}")
    for name, one, other in zip(Examples._fields, first, second, strict=True):
        same = not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)) or torch.equal(one, other)
        problem = f"{name} differ between two generators that are equal: draw from `generator` alone"
        _require(same, task, "batch", problem)
    return first


def _check_examples(task: Task, examples: Examples, length: int, symbols: int) -> None:
    with blamed_on("data", task, "tokens"):
        tokens = task.tokens(length)
    with blamed_on("data", task, "reach"):
        reach = task.reach(length)
    shape, at = (_COUNT, tokens), f"at length {length}"
    for name, ids in examples._asdict().items():
        if name == "positions" and ids is None:
            continue
        fits = isinstance(ids, torch.Tensor) and tuple(ids.shape) == shape and ids.dtype == torch.int64
        problem = f"{name} must be (count, tokens(length)) = {shape} of int64 {at}, not {described(ids)}"
        _require(fits, task, "batch", problem)
        given = ids[ids != IGNORED] if name == "targets" else ids
        least, most = int(given.min()) if given.numel() else 0, int(given.max()) if given.numel() else 0
        end = reach if name == "positions" else symbols
        problem = f"{name} have {least if least < 0 else most} {at}, but must be from 0 to {end - 1}"
        _require(0 <= least <= most < end, task, "batch", problem)
    asks = bool((examples.targets != IGNORED).any(1).all())
    _require(asks, task, "batch", f"asks nothing in an example {at}: all of its targets are {IGNORED}")
    enough = examples.positions is not None or reach >= tokens
    _require(enough, task, "reach", f"must be at least {tokens}, the number of tokens {at}, not {reach}")


def _check_figures(task: Task, examples: Examples) -> None:
    """Check parts, and figures derived of a test in which all is right."""
    with blamed_on("data", task, "parts"):
        parts = task.parts(examples)
    shape = tuple(examples.targets.shape)
    for name, mask in parts.items():
        fits = isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.shape == shape
        _require(fits, task, "parts", f"{name} must be {shape} of bool, not {described(mask)}")
    endings = ("", *(f"_{part}" for part in parts))
    with blamed_on("data", task, "derived"):
        task.derived({f"{kind}{ending}": 1.0 for kind in ("exact", "accuracy") for ending in endings})


def _require(fits: bool, task: Task, method: str, problem: str) -> None:
    if not fits:
        raise SettingError("data", f"{type(task).__name__}.{method}", problem)
