"""Processors: how many there are, how many torch computes on, and whether torch compiles for them."""

import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def available() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_on(threads: int | None) -> None:
    """Give torch so many threads; None leaves it its own number."""
    if threads is not None:
        torch.set_num_threads(threads)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by itself, for up to 64 schemes, lengths and models that a process meets.

    After torch's default of 8, counted over all that is compiled of one code, it would run uncompiled.
    """
    if "isolate_recompiles" not in inspect.signature(torch.compile).parameters:  # before torch 2.13
        torch._dynamo.config.recompile_limit = 64
        return torch.compile(function)
    return torch.compile(function, recompile_limit=64, isolate_recompiles=True)  # type: ignore[call-overload]


@cache
def compiler_problem(device: str) -> str | None:
    """Say why torch.compile makes no code for cpu or cuda on this machine; None: it does, as a trial has shown."""
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except (RuntimeError, OSError) as error:
        return compiler_reason(error)
    return None


def compiler_reason(error: Exception) -> str:
    """Return the line of an error of torch.compile that says what is wrong: above it may stand which backend raised it,
    and below how to learn more."""
    return next(line for line in str(error).splitlines() if not line.startswith("backend="))
