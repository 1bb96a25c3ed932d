"""Measuring several things fairly: in turns, so that a noisy minute of the machine meets all of them."""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds: the median of several runs, and the quartiles around it."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        if len(seconds) == 1:
            return cls(seconds[0], seconds[0], seconds[0])
        lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median, lower, upper)


def take_turns(cases: Mapping[str, Callable[[], float | None]], rounds: int, warmups: int = 1) -> dict[str, Timing]:
    """Runs every case once per round. A case may return the seconds that count; else all of it counts."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(warmups + rounds):
        for name, run in cases.items():
            started = time.perf_counter()
            own = run()
            elapsed = time.perf_counter() - started if own is None else own
            if number >= warmups:
                seconds[name].append(elapsed)
    return {name: Timing.of(values) for name, values in seconds.items()}


def peak_memory(run: Callable[[], object]) -> int | None:
    """Bytes by which the process grew at most while `run` ran; None where the system doesn't tell (not Linux)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    except (OSError, AttributeError):
        return None
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def matrix_peak(dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of ten products of two square matrices of 2,048 rows: what this machine can do at most."""
    a, b = torch.randn(2, 2048, 2048).to(dtype).unbind()

    def seconds() -> float:
        started = time.perf_counter()
        a @ b
        return time.perf_counter() - started

    return 2 * 2048**3 / min(seconds() for _ in range(10))
