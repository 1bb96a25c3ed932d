"""Processors: how threads of torch wait for each other, how many there are, and whether torch compiles for them.

A thread of torch that waits for the others spins, by default of GNU's OpenMP 300,000 times. Where other programs
compute as well, the thread that it waits for does not run meanwhile: two trainings of two threads each on two
processors slow each other to an eighth. After a short spin threads sleep, and leave the processor to others: on two
cores (AMD EPYC, AVX-512) the main job trains 1,374 tokens/s after 3,000 spins and 1,364 by default, and of two at once
each does 617 instead of 163. Alone, 1,000 spins cost 4 % of that, and none 16 %.
"""

from __future__ import annotations

import os
from functools import cache

from poslab.lazy import torch

SPINS = "3000"


def prepare() -> None:
    """Let threads of OpenMP sleep soon, unless the environment says otherwise. Call before torch is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def available() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_on(threads: int | None) -> None:
    """Give torch so many threads; None leaves it its own number."""
    if threads is not None:
        torch.set_num_threads(threads)


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
