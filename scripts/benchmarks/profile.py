"""Profile of a training step: torch's operations by the sizes of their inputs."""

import os
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.entrants import MINI, Size, ours
from benchmarks.measure import processes
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from benchmarks.step import PRECISIONS, step_seconds
from poslab.config.nodes import default_scheme

_SHOWN = 20
_WARMUPS = 3

# Name and sizes of an operation, its milliseconds and its calls per step.
Operation = tuple[str, float, float]


def measure_profile(config: BenchmarkConfig, rounds: int, size: Size = MINI) -> list[Table]:
    """Return one table per scheme and precision, for the named schemes or the default one."""
    tables = []
    with processes(ours(config.schemes or [default_scheme()])) as asks:
        for name, ask in asks.items():
            for precision, dtype in PRECISIONS.items():
                operations = ask(step_operations, name, size, dtype, rounds)
                tables.append(_table(f"{name}, {precision}, {size.name}", operations))
    return tables


def step_operations(name: str, size: Size, dtype: torch.dtype, rounds: int) -> list[Operation]:
    """Return the operations of a training step, the longest first, each without those that it calls."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler tells the console when it starts and stops
    for _ in range(_WARMUPS):
        step_seconds(name, size, dtype)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(rounds):
            step_seconds(name, size, dtype)
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in recorded.key_averages(group_by_input_shape=True):
        label = _label(event.key, event.input_shapes)
        times[label] += event.self_cpu_time_total
        calls[label] += event.count
    return [(label, time / 1e3 / rounds, calls[label] / rounds) for label, time in times.most_common()]


def _label(name: str, shapes: list[list[int]]) -> str:
    """Return a label such as "mm 1024x256 256x768", without numbers and inputs that have no size."""
    sizes = ["x".join(map(str, shape)) for shape in shapes if shape]
    return " ".join([name.removeprefix("aten::"), *sizes[:3]])


def _table(of: str, operations: list[Operation]) -> Table:
    total = sum(milliseconds for _, milliseconds, _ in operations)
    rest = operations[_SHOWN:]
    others = (f"{len(rest)} others", sum(part[1] for part in rest), sum(part[2] for part in rest))
    rows = {
        name: {"ms": f"{milliseconds:.1f}", "of the step": f"{milliseconds / total:.1%}", "calls": f"{calls:.0f}"}
        for name, milliseconds, calls in [*operations[:_SHOWN], others]
    }
    return Table(f"Operations of a training step, {of}: {total:.0f} ms", rows)
