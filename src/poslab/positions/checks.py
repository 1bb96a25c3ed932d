"""Checks of a scheme before anything is computed with it: it fits the model, and its hooks work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from poslab.errors import SettingError
from poslab.lazy import Tensor, torch
from poslab.positions.base import ModelShape, PositionScheme, Tables
from poslab.positions.contract import HookChecker, check_numbers, described, trying, wrong


def check_sizes(scheme: PositionScheme, shape: ModelShape) -> None:
    """Check the settings without torch. Raises SettingError where they can't work with this model."""
    with trying(scheme, "check"):
        scheme.check(shape)
    with trying(scheme, "max_length"):
        longest = scheme.max_length(shape)
    if longest is not None and (type(longest) is not int or longest < 1):
        raise wrong(scheme, "max_length", f"must give a whole number from 1 on, or None, not {described(longest)}")


def check_memory(scheme: PositionScheme, shape: ModelShape, memory_length: int) -> None:
    """Check, without torch, that keys may be so far away. Raises SettingError where the model can't remember."""
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
    """Return the scheme's initial tables. Raises SettingError where they can't be learned."""
    with trying(scheme, "tables"):
        tables = scheme.tables(shape)
    check_tables(scheme, tables)
    return tables


def check_tables(scheme: PositionScheme, tables: Tables) -> None:
    """Raise SettingError for tables that can't be learned."""
    if not isinstance(tables, Mapping):
        raise wrong(scheme, "tables", f"must give a dict of tensors, not {described(tables)}")
    for name, table in tables.items():
        if not (isinstance(name, str) and name and "." not in name):
            raise wrong(scheme, "tables", f"must name tables in words without a dot, not {name!r}")
        if not isinstance(table, torch.Tensor) or not table.is_floating_point():
            raise wrong(scheme, "tables", f"{name} must be a tensor of floating point, not {described(table)}")
        check_numbers(scheme, "tables", name, table)


def check_hooks(scheme: PositionScheme, tables: Tables, shape: ModelShape, layers: Sequence[int] | None = None) -> None:
    """Raise SettingError, naming hook and shape, for a hook whose result attention can't use.

    tables: on any device but "meta", where nothing can be tried. layers: by default all.
    """
    device = next((table.device for table in tables.values()), torch.empty(0).device)
    if type(scheme) is PositionScheme or device.type == "meta":
        return
    with torch.no_grad():
        checker = HookChecker(scheme, tables, shape, device)
        checker.sample()
        checker.embed()
        checker.rotate()
        for layer in range(shape.num_layers) if layers is None else layers:
            checker.layer(layer)
        if layers is None:
            checker.warnings()
            checker.pictures()


def check_once(scheme: PositionScheme, tables: Tables, shape: ModelShape, layer: int) -> None:
    """Run `check_tables` and `check_hooks` of one layer at the first call only, for callers in a training loop."""
    sizes = shape.embed_dim, shape.num_heads, shape.num_layers, shape.causal
    tried = repr(scheme), type(scheme), sizes, layer, tuple(map(described, tables.values()))
    if tried not in _TRIED:
        check_tables(scheme, tables)
        with torch.random.fork_rng(devices=[]):
            expected = initial_tables(scheme, shape)
        if tables.keys() != expected.keys():
            listed = ", ".join(expected) or "none"
            problem = f"must be those of {type(scheme).__name__}.tables(shape): {listed}"
            raise SettingError("tables", ", ".join(tables) or "none", problem)
        check_hooks(scheme, tables, shape, [layer])
        _TRIED.add(tried)


_TRIED: set[Any] = set()
