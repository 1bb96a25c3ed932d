"""Benchmark of attention alone, forward and backward: every scheme with all of its hooks, and other libraries' T5."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.entrants import (
    Attention,
    of_libraries,
    ours,
    poslab_attention,
    transformers_t5,
    x_transformers_t5,
)
from benchmarks.measure import Timing, device, now, peak_memory, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.errors import SettingError
from poslab.training.machine import keep_freed_memory

Shape = tuple[int, int, int, int]  # (B, H, T, Dh)
SHAPES: tuple[Shape, ...] = ((8, 4, 256, 64), (2, 4, 1024, 64), (1, 4, 2048, 64), (1, 4, 4096, 64))
LONG: Shape = (1, 4, 8192, 64)  # memory only, and only for what keeps no (T, T) tensor


def flash(q: Tensor, k: Tensor, v: Tensor) -> Attention:
    """Return torch's kernel for causal attention without positions."""
    return [], partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)


def _dense(name: str) -> str:
    return f"{name}, dense"


FLASH = "torch flash, no positions"
RIVALS = {"transformers T5Attention": transformers_t5, "x-transformers T5 bias": x_transformers_t5}
ENTRANTS: dict[str, Callable[[Tensor, Tensor, Tensor], Attention]] = {
    FLASH: flash,
    **{name: partial(poslab_attention, scheme, "auto") for name, scheme in ours().items()},
    # As most code computes it: all scores at once, a (T, T) matrix per head.
    **{_dense(name): partial(poslab_attention, scheme, "reference") for name, scheme in ours().items()},
    **RIVALS,
}


def measure_attention(
    config: BenchmarkConfig, rounds: int, shapes: Sequence[Shape] = SHAPES, long: Shape = LONG
) -> list[Table]:
    """Return one table per shape, and one of memory over the shapes that differ only in T."""
    tables = []
    linear = [FLASH, *ours(config.schemes)]
    dense = [*map(_dense, ours(config.schemes))] if config.dense else []
    with processes([*linear, *dense, *of_libraries(RIVALS, config.rivals)], config.device) as asks:
        memory = {
            name: {
                shape: ask(peak_bytes, name, shape)
                for shape in (*shapes, *([long] if name in linear else []))
                if ask(takes, name, shape)
            }
            for name, ask in asks.items()
        }
        for name in linear[1:]:
            asks[name](keep_freed_memory)  # as training does
        for shape in shapes:
            cases = {name: partial(ask, seconds, name, shape) for name, ask in asks.items() if shape in memory[name]}
            timings = take_turns(cases, rounds if shape[2] < 4096 else math.ceil(rounds / 2))
            title = f"Attention, forward and backward, float32, (B, H, T, Dh) = {shape}"
            tables.append(beside_flash(title, timings))
    lengths = [shape for shape in (*shapes, long) if shape[0] == 1]
    rows = {name: _memory(peaks, lengths) for name, peaks in memory.items()}
    return [*tables, Table("Peak memory of a forward and backward pass above its inputs, MB", rows)]


def takes(name: str, shape: Shape) -> bool:
    """Return whether the entrant takes so long a text."""
    try:
        forward_and_backward(name, shape)
    except SettingError:
        return False
    return True


def peak_bytes(name: str, shape: Shape) -> int | None:
    """Return the memory of a forward and backward pass above its inputs, or None if the system does not report it."""
    return peak_memory(forward_and_backward(name, shape))


def seconds(name: str, shape: Shape, dtype: torch.dtype = torch.float32) -> float:
    """Return the time of a forward and backward pass, the second of two, as the entrant before has filled the
    caches."""
    run = forward_and_backward(name, shape, dtype)
    run()
    started = now()
    run()
    return now() - started


@cache
def forward_and_backward(
    name: str, shape: Shape, dtype: torch.dtype = torch.float32
) -> Callable[[], tuple[Tensor, ...]]:
    """Return the entrant's pass, which returns the output and the gradients of q, k and v, over equal numbers for all
    entrants and in every precision."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(shape, generator=generator).bfloat16().to(device(), dtype) for _ in range(4))
    inputs = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_()]
    torch.manual_seed(0)  # of the scheme's tables
    learned, forward = ENTRANTS[name](*inputs)

    def run() -> tuple[Tensor, ...]:
        with torch.autocast(device().type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = forward()
        # Unused are a scheme's tables for the embedding, and the keys and values of T5Attention.
        gradients = torch.autograd.grad(out, [*inputs, *learned], grad.to(out.dtype), allow_unused=True)
        return out.detach(), *gradients[:3]

    return run


def beside_flash(title: str, timings: dict[str, Timing]) -> Table:
    columns: dict[str, Callable[[Timing], str]] = {
        "median ms": lambda t: f"{t.median * 1e3:.1f}",
        "quartiles": lambda t: t.quartiles(1e3),
        "x flash": lambda t: f"{t.median / timings[FLASH].median:.2f}",
    }
    return Table.of(title, timings, columns)


def _memory(peaks: dict[Shape, int | None], lengths: Sequence[Shape]) -> dict[str, str]:
    """Return megabytes at each length, and their growth from the first measured length to the last."""
    cells = {f"T = {s[2]}": f"{peak / 1e6:,.0f}" if (peak := peaks.get(s)) is not None else "" for s in lengths}
    known = [(s[2], peak) for s in lengths if (peak := peaks.get(s))]
    growth = f"{known[-1][1] / known[0][1]:.1f} at {known[-1][0] / known[0][0]:.0f} x T" if len(known) > 1 else ""
    return cells | {"grows by": growth}
