"""Full training steps at equal size: tokens per second, ours and the peers'."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from poslab.benchmark.entrants import CONTEXT, EMBED, LAYERS, VOCABULARY, build, entrant_names
from poslab.benchmark.report import Table
from poslab.benchmark.timing import Timing, matrix_peak, take_turns
from poslab.benchmark.workers import start_all

BATCH = 4
PRECISIONS = {"float32": torch.float32, "bfloat16 autocast": torch.bfloat16}
# Multiply-adds count as two. Forward 2 per weight and token, backward twice that, for every matrix of the trunk and the
# head; and the causal half of the products of queries with keys and of weights with values.
FLOPS_PER_TOKEN = 6 * (12 * LAYERS * EMBED**2 + VOCABULARY * EMBED) + 6 * LAYERS * CONTEXT * EMBED


def measure_step(rounds: int) -> tuple[dict[str, Any], list[Table]]:
    """(raw results, one table per precision)."""
    workers, missing = start_all(build_step, entrant_names())
    parameters = {name: worker.about for name, worker in workers.items()}
    results: dict[str, Any] = {"flops_per_token": FLOPS_PER_TOKEN, "parameters": parameters, "seconds": {}}
    tables = []
    for precision, dtype in PRECISIONS.items():
        timings = take_turns({name: partial(worker.ask, dtype) for name, worker in workers.items()}, rounds, warmups=2)
        peak = matrix_peak(dtype)
        results["seconds"][precision] = {name: asdict(timing) for name, timing in timings.items()}
        results.setdefault("matrix_peak_flops", {})[precision] = peak
        tables.append(_table(precision, timings, parameters, peak, missing))
    for worker in workers.values():
        worker.stop()
    return results, tables


def build_step(name: str) -> tuple[int, Callable[[torch.dtype], float]]:
    """The entrant's number of parameters, and a training step in a precision that returns the seconds it took."""
    model, loss_of, optimizer = build(name)
    tokens, targets = torch.randint(VOCABULARY, (2, BATCH, CONTEXT)).unbind()

    def step(dtype: torch.dtype) -> float:
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - started

    return sum(parameter.numel() for parameter in model.parameters()), step


def _table(
    precision: str, timings: dict[str, Timing], parameters: dict[str, int], peak: float, missing: list[str]
) -> Table:
    tokens = BATCH * CONTEXT
    ours = timings["poslab absolute"].median
    table = Table(
        f"Training step, {precision}, model=mini, batch {BATCH} x {CONTEXT}, no dropout",
        ["", "tokens/s", "quartiles", "poslab absolute is", "of matrix peak", "parameters"],
        notes=[
            f"{FLOPS_PER_TOKEN / 1e6:.1f} MFLOP per token: 6 for each weight of the trunk's and the head's matrices, "
            f"and 6 x layers x context x width for causal attention. Matrix peak, measured: {peak / 1e9:.0f} GFLOP/s. "
            "Each entrant runs in a process of its own. poslab runs as it trains: fused AdamW, loss and head in one, "
            "freed memory kept. Peers run eager with torch's default AdamW and memory; the book's model has its head "
            "tied to the embedding, as all others have theirs. What autocast leaves in float32 counts, too: where "
            "bfloat16 products are emulated and slow, a share of their peak can exceed 100 %.",
            *missing,
        ],
    )
    for name, timing in timings.items():
        table.rows.append(
            [
                name,
                f"{tokens / timing.median:,.0f}",
                f"{tokens / timing.upper:,.0f} to {tokens / timing.lower:,.0f}",
                f"{timing.median / ours:.2f} x as fast",
                f"{tokens * FLOPS_PER_TOKEN / timing.median / peak:.0%}",
                f"{parameters[name]:,}",
            ]
        )
    return table
