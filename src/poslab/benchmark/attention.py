"""Forward and backward pass of attention alone: ours, and what else computes the same."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch.nn import functional as F

from poslab.attention import attend
from poslab.benchmark.cases import Run, Shape, case, inputs, scheme_terms
from poslab.benchmark.report import Table
from poslab.benchmark.rivals import LEFT_OUT, RIVALS, fits
from poslab.benchmark.timing import Timing, peak_memory, take_turns
from poslab.benchmark.workers import start_all
from poslab.settings.train import CONFIGS, parse_scheme
from poslab.training.memory import keep_freed_memory

SHAPES: tuple[Shape, ...] = ((8, 4, 256, 64), (2, 4, 1024, 64), (1, 4, 2048, 64), (1, 4, 4096, 64))
LONG: Shape = (1, 4, 16384, 64)  # memory only, and only for what keeps no (T, T) tensor


def measure_attention(
    rounds: int, shapes: Sequence[Shape] = SHAPES, long: Shape = LONG
) -> tuple[dict[str, Any], list[Table]]:
    """(raw results, one table per shape and one of memory)."""
    workers, missing = start_all(partial(build_attention, shapes=shapes, long=long), list(ENTRANTS))
    memory: dict[str, dict[Shape, int | None]] = {name: worker.about for name, worker in workers.items()}
    seconds, tables = {}, []
    for shape in shapes:
        cases = {name: partial(worker.ask, shape) for name, worker in workers.items() if shape in memory[name]}
        timings = take_turns(cases, rounds if shape[2] < 4096 else math.ceil(rounds / 2))
        seconds[str(shape)] = {name: asdict(timing) for name, timing in timings.items()}
        tables.append(_table(shape, timings, memory))
    for worker in workers.values():
        worker.stop()
    tables.append(_memory_table(memory, shapes, long))
    tables[-1].notes += missing
    in_words = {name: {str(shape): peak for shape, peak in peaks.items()} for name, peaks in memory.items()}
    return {"seconds": seconds, "peak_memory": in_words}, tables


def build_attention(
    name: str, shapes: Sequence[Shape], long: Shape
) -> tuple[dict[Shape, int | None], Callable[[Shape], float]]:
    """The peak memory at each shape that the entrant can run, and a function that times it at one of them."""
    linear = name == FLOOR or name.startswith("poslab ")
    runs = {shape: ENTRANTS[name](shape) for shape in shapes if fits(name, shape)}
    memory = {shape: peak_memory(run) for shape, run in runs.items()}
    if linear:
        memory[long] = peak_memory(ENTRANTS[name](long))
    if name.startswith("poslab "):
        keep_freed_memory()  # as its training does

    def seconds(shape: Shape) -> float:
        runs[shape]()  # what others did in between has emptied the caches
        started = time.perf_counter()
        runs[shape]()
        return time.perf_counter() - started

    return memory, seconds


def _flash(shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    return case(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v], grad)


def _ours(yaml: Path, shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    tables, terms = scheme_terms(parse_scheme(OmegaConf.to_container(OmegaConf.load(yaml))), shape)
    learned = list(tables.values()) if terms() is not None else []  # else they have no part in attention
    return case(lambda: attend(q, k, v, terms()), [q, k, v, *learned], grad)


FLOOR = "flash, no positions"
ENTRANTS: dict[str, Callable[[Shape], Run]] = {
    FLOOR: _flash,
    **{f"poslab {yaml.stem}": partial(_ours, yaml) for yaml in sorted(CONFIGS.glob("pos/*.yaml"))},
    **RIVALS,
}


def _table(shape: Shape, timings: dict[str, Timing], memory: dict[str, dict[Shape, int | None]]) -> Table:
    floor = timings[FLOOR].median
    table = Table(
        f"Attention, forward and backward, float32, (B, H, T, Dh) = {shape}",
        ["", "median ms", "quartiles", "x flash", "peak MB"],
    )
    for name, timing in timings.items():
        quartiles = f"{timing.lower * 1e3:.1f} to {timing.upper * 1e3:.1f}"
        ratio = f"{timing.median / floor:.2f}"
        table.rows.append([name, f"{timing.median * 1e3:.1f}", quartiles, ratio, _megabytes(memory[name][shape])])
    return table


def _memory_table(memory: dict[str, dict[Shape, int | None]], shapes: Sequence[Shape], long: Shape) -> Table:
    single = [shape for shape in (*shapes, long) if shape[0] == 1]  # comparable: they differ in T alone
    growth = f"T x {long[2] / single[0][2]:g}"
    table = Table(
        "Peak memory of a forward and backward pass above its inputs, MB, and how it grows",
        ["", *(f"T = {shape[2]}" for shape in single), growth],
        notes=[
            "Each entrant runs in a process of its own, and twice in each turn, of which the second run counts. poslab "
            "runs as it trains, with freed memory kept by the process, the others as torch comes. T5Attention runs "
            f"with q = k = v and without its four projections. {LEFT_OUT} Peak memory is what the system counts for "
            "the process, before any freed memory is kept."
        ],
    )
    for name, by_shape in memory.items():
        peaks = [by_shape.get(shape) for shape in single]
        ratio = f"{peaks[-1] / peaks[0]:.1f} x" if peaks[-1] and peaks[0] else "n/a"
        table.rows.append([name, *map(_megabytes, peaks), ratio])
    return table


def _megabytes(size: int | None) -> str:
    return "n/a" if size is None else f"{size / 1e6:,.0f}"
