"""Timing of entrants in processes of their own, measured in turns, so that noise of the machine affects all alike."""

import ctypes
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

# ask(function, *arguments): the function's result, from the process of one entrant.
Ask = Callable[..., Any]


@dataclass(frozen=True)
class Timing:
    """Seconds: the median of several runs, and the quartiles around it."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        lower, median, upper = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
        return cls(median, lower, upper)

    def quartiles(self, factor: float = 1.0, digits: int = 1) -> str:
        """Return the quartiles in words, in seconds times `factor`."""
        return f"{self.lower * factor:.{digits}f} to {self.upper * factor:.{digits}f}"


def take_turns(cases: Mapping[str, Callable[[], float]], rounds: int, warmups: int = 1) -> dict[str, Timing]:
    """Run every case once per round; each returns its seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(warmups + rounds):
        for name, run in cases.items():
            elapsed = run()
            if number >= warmups:
                seconds[name].append(elapsed)
    return {name: Timing.of(values) for name, values in seconds.items()}


def device() -> torch.device:
    """Return the device that this process measures."""
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")


def now() -> float:
    """Return the time, s, after what a GPU still has to do."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _prepare(threads: int, name: str) -> None:
    """Prepare a process for a device."""
    torch.set_num_threads(threads)
    if name == "cuda":
        torch.cuda.init()


@contextmanager
def processes(names: Iterable[str], device_name: str = "cpu") -> Iterator[dict[str, Ask]]:
    """Start a process for each library, so that none's imports, threads or memory settings affect another's.

    An entrant's name begins with that of its library; if that is not installed, a line says that it is left out. After
    a comma the name says how the library is set up, which takes a process as well.
    """
    with ExitStack() as stack:
        asks: dict[str, Ask] = {}
        pools: dict[str, ProcessPoolExecutor] = {}
        for name in names:
            model, _, setup = name.partition(", ")
            library = model.split()[0]
            if find_spec(library.replace("-", "_")) is None:
                print(f"{name} is left out: {library} isn't installed; python -m pip install -e '.[bench]'", flush=True)
                continue
            home = f"{library}, {setup}"
            if home not in pools:
                spawn = multiprocessing.get_context("spawn")
                pool = ProcessPoolExecutor(1, spawn, _prepare, (torch.get_num_threads(), device_name))
                pools[home] = stack.enter_context(pool)
            submit = pools[home].submit
            asks[name] = lambda function, *arguments, submit=submit: submit(function, *arguments).result()
        yield asks


def peak_memory(run: Callable[[], object]) -> int | None:
    """Return the bytes by which the process grew at most while `run` ran, on a GPU what it allocated; None if the
    system does not report them (not Linux)."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        begun = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - begun
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    except (OSError, AttributeError):
        return None
    before = _process_memory("VmRSS")
    run()
    return _process_memory("VmHWM") - before


def _process_memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024
