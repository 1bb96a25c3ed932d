"""Benchmark of attention under bfloat16 autocast: time beside torch's flash kernel, and errors against float64."""

from functools import partial

import torch

from benchmarks.attention import FLASH, Shape, beside_flash, forward_and_backward, seconds
from benchmarks.entrants import ours
from benchmarks.measure import processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.training.machine import keep_freed_memory

SHAPE: Shape = (1, 4, 2048, 64)


def measure_bfloat16(config: BenchmarkConfig, rounds: int, shape: Shape = SHAPE) -> list[Table]:
    """Return one table."""
    with processes([FLASH, *ours(config.schemes)], config.device) as asks:
        for ask in asks.values():
            ask(keep_freed_memory)  # as training does
        errors = {name: ask(relative_errors, name, shape) for name, ask in asks.items()}
        timings = take_turns(
            {name: partial(ask, seconds, name, shape, torch.bfloat16) for name, ask in asks.items()}, rounds
        )
    title = f"Attention, forward and backward, bfloat16, (B, H, T, Dh) = {shape}; errors are root mean squares"
    table = beside_flash(title, timings)
    for name, (of_output, of_gradients) in errors.items():
        table.rows[name] |= {"error": f"{of_output:.1e}", "of gradients": f"{of_gradients:.1e}"}
    return [table]


def relative_errors(name: str, shape: Shape) -> tuple[float, float]:
    """Return the relative errors of the output, and of the gradients of q, k and v, against float64."""
    rounded, exact = (forward_and_backward(name, shape, dtype)() for dtype in (torch.bfloat16, torch.float64))
    errors = [float((a.double() - b).norm() / b.norm()) for a, b in zip(rounded, exact, strict=True)]
    return errors[0], max(errors[1:])
