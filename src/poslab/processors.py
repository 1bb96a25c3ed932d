"""Processors: how threads of torch wait for each other, how many there are, how many other programs use, and whether
torch compiles for them.

A thread of torch that waits for the others spins, by default of GNU's OpenMP 300,000 times. Where other programs
compute as well, the thread that it waits for does not run meanwhile: two trainings of two threads each on two
processors slow each other to an eighth. After a short spin threads sleep, and leave the processor to others: on two
cores (AMD EPYC, AVX-512) the main job trains 1,374 tokens/s after 3,000 spins and 1,364 by default, and of two at once
each does 617 instead of 163. Alone, 1,000 spins cost 4 % of that, and none 16 %.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path

from poslab.lazy import torch

SPINS = "3000"
_start: tuple[float, float] | None = None  # of this program, and what other programs had used by then


def _used_by_others() -> float:
    """Return the processor time that other programs have used so far, s; 0 where the system doesn't say."""
    try:
        _, user, nice, system, *_ = Path("/proc/stat").read_text().split(maxsplit=4)
    except (OSError, ValueError):  # on another system than Linux
        return 0.0
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def prepare() -> None:
    """Let threads of OpenMP sleep soon, unless the environment says otherwise, and begin to count the time that other
    programs use. Call before torch is loaded."""
    global _start
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    _start = time.monotonic(), _used_by_others()


def busy_with_others() -> list[str]:
    """Warn where other programs use some of the processors; not where the user has chosen a number of threads."""
    if _start is None or "OMP_NUM_THREADS" in os.environ:
        return []
    begun, used = _start
    others = (_used_by_others() - used) / (time.monotonic() - begun)
    if others < 0.5:
        return []
    share = f"{others:.1f} of {os.cpu_count() or 1} processors"
    return [f"other programs compute on about {share}: both will be slower, and threads=1 leaves them most"]


def compute_on(threads: int | None) -> None:
    """Give torch so many threads; without a number, warn on stderr where other programs compute as well."""
    if threads is not None:
        torch.set_num_threads(threads)
        return
    for note in busy_with_others():
        print(f"note: {note}", file=sys.stderr)


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
