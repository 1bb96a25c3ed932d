"""A task's mistakes are named before anything trains."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from common import TASKS, compose_config, make_task
from torch import Tensor

from poslab.config.schemes import parse_task
from poslab.contract import try_before_training
from poslab.errors import SettingError
from poslab.tasks import Examples, Task
from poslab.tasks.base import IGNORED
from poslab.tasks.checks import check_task


@dataclass(frozen=True, kw_only=True)
class Good(Task):
    """Says each symbol again."""

    @property
    def symbols(self) -> tuple[str, ...]:
        return "a", "b", "c"

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        tokens = torch.randint(3, (count, length), generator=generator)
        return Examples(tokens, tokens)


def task_with(**members: Any) -> Task:
    """Return Good with these members."""
    cls = dataclass(frozen=True, kw_only=True)(type("Bad", (Good,), members))
    return cls(min_length=2, max_length=6, test_lengths=[6, 20])


def batch_of(change: Callable[[Tensor], Any]) -> Callable[..., Any]:
    """Return a method `batch` that gives what `change` makes of the tokens."""
    return lambda self, generator, count, length: change(torch.randint(3, (count, length), generator=generator))


def unlike(self: Task, generator: torch.Generator, count: int, length: int) -> Examples:
    tokens = torch.randint(3, (count, length))
    return Examples(tokens, tokens)


class TooLong(Good):
    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        if length == 20:
            raise IndexError("too long for me")
        return Good.batch(self, generator, count, length)


BAD: dict[str, dict[str, Any]] = {
    r"batch: tokens have 4 at length 2, but must be from 0 to 2": {"batch": batch_of(lambda t: Examples(0 * t + 4, t))},
    r"batch: targets have -1": {"batch": batch_of(lambda t: Examples(t, 0 * t - 1))},
    r"batch: targets must be .* = \(3, 2\) of int64 at length 2, not \(3, 1\)": {
        "batch": batch_of(lambda t: Examples(t, t[:, 1:]))
    },
    r"batch: tokens must be .* not \(3, 2\) of float32": {"batch": batch_of(lambda t: Examples(t.float(), t))},
    r"batch: asks nothing in an example at length 2": {"batch": batch_of(lambda t: Examples(t, 0 * t + IGNORED))},
    r"batch: must give Examples\(tokens, targets\), not tuple": {"batch": batch_of(lambda t: (t, t))},
    r"batch: tokens differ between two generators that are equal": {"batch": unlike},
    r"batch \(test_checks\.py, line \d+\): raises IndexError: too long for me": {"batch": TooLong.batch},
    r"batch: positions must be .* not \(3,\) of int64": {"batch": batch_of(lambda t: Examples(t, t, t[:, 0]))},
    r"reach: must be at least 2, the number of tokens at length 2, not 1": {"reach": lambda self, length: 1},
    r"symbols: must be a @property that gives a tuple of ": {"symbols": lambda self: ("a", "b", "c")},
    r"symbols: must be .* different names, not \('a', 'a', 'c'\)": {"symbols": property(lambda self: ("a", "a", "c"))},
    r"parts: first must be \(3, 2\) of bool, not \(3, 1\) of int64": {
        "parts": lambda self, examples: {"first": examples.targets[:, :1]}
    },
    r"derived.*: raises KeyError: 'accuracy_none'": {"derived": lambda self, shares: {"x": shares["accuracy_none"]}},
    r"shifts: raises TypeError: 'list' object is not a mapping": {"shifts": lambda self: []},
    r"bacth: is no method of a task \(did you mean batch\?\)": {"bacth": batch_of(lambda t: Examples(t, t))},
}


@pytest.mark.parametrize(("problem", "members"), BAD.items(), ids=BAD)
def test_a_task_that_gives_what_it_should_not_is_refused(problem: str, members: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=rf"^data=Bad\.{problem}"):
        try_before_training(replace(compose_config("data=copy"), data=task_with(**members)))


def test_a_task_without_methods_is_told_which_is_missing() -> None:
    bare = dataclass(frozen=True, kw_only=True)(type("Bare", (Task,), {}))
    with pytest.raises(SettingError, match=r"^data=Bare\.symbols.*: "):
        check_task(bare(min_length=2, max_length=6, test_lengths=[6]))


@pytest.mark.parametrize("name", TASKS)
def test_poslab_s_own_tasks_pass(name: str) -> None:
    check_task(make_task(name))
    assert not any(" " in symbol or not symbol for symbol in make_task(name).symbols)


@dataclass(frozen=True, kw_only=True)
class Odd(Good):
    def __post_init__(self) -> None:
        raise ValueError("only odd lengths")


def test_a_task_may_refuse_its_settings_in_a_plain_way() -> None:
    node = {"_target_": f"{__name__}.Odd", "min_length": 2, "max_length": 6, "test_lengths": [6]}
    with pytest.raises(SettingError, match=r"^data=.*test_checks\.Odd: .*only odd"):
        parse_task(node)
