"""What a scheme must fit when a model is made: its sizes, its memory, and parameters made of its tables."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from poslab.errors import SettingError, blamed_on, described
from poslab.positions.base import ModelShape, PositionScheme


def check_sizes(scheme: PositionScheme, shape: ModelShape) -> None:
    """Check the settings. Raises SettingError where they can't work with this model."""
    with blamed_on("pos", scheme, "check"):
        scheme.check(shape)
    with blamed_on("pos", scheme, "max_length"):
        longest = scheme.max_length(shape)
        if longest is not None and longest < 1:
            problem = f"must be at least 1, or None, not {longest}"
            raise SettingError("pos", f"{type(scheme).__name__}.max_length", problem)


def check_length(
    scheme: PositionScheme, shape: ModelShape, length: int | torch.SymInt, option: str = "tokens", value: object = None
) -> None:
    """Raise SettingError, for `option` and its value, where the scheme knows fewer positions."""
    longest = scheme.max_length(shape)
    if longest is not None and length > longest:
        problem = f"this position scheme knows {longest} positions, no more"
        raise SettingError(option, f"{length} long" if value is None else value, problem)


def check_memory(scheme: PositionScheme, shape: ModelShape, memory_length: int) -> None:
    """Check that keys may be so far away. Raises SettingError where the model can't remember."""
    if memory_length == 0:
        return
    if not shape.causal:
        raise SettingError("memory_length", memory_length, "needs a causal model: this one sees the future")
    longest, needed = scheme.max_length(shape), shape.context_length + memory_length
    if longest is not None and not (scheme.shift_invariant and longest >= needed):
        problem = f"this position scheme ends at a length: it knows {longest} positions, no more"
        raise SettingError("memory_length", memory_length, problem)
    try:
        check_sizes(scheme, replace(shape, context_length=needed))
    except SettingError as error:
        problem = f"with a context of {shape.context_length} makes {needed} positions, and pos.{error.option}="
        raise SettingError("memory_length", memory_length, f"{problem}{error.value} {error.problem}") from None


def initial_tables(scheme: PositionScheme, shape: ModelShape) -> dict[str, Tensor]:
    """Return the scheme's initial tables. Raises SettingError for a table that can't be a parameter."""
    with blamed_on("pos", scheme, "tables"):
        tables = scheme.tables(shape)
        for name, table in tables.items():
            if not isinstance(table, torch.Tensor) or not table.is_floating_point():
                problem = f"{name} must be a tensor of floating point, not {described(table)}"
                raise SettingError("pos", f"{type(scheme).__name__}.tables", problem)
    return tables
