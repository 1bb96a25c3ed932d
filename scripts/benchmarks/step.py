"""Benchmark of full training steps at equal size: tokens per second of poslab and other libraries."""

import math
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bare import BareGPT, BareModernGPT
from benchmarks.entrants import (
    BLOCKS,
    GPT2,
    GPT2_ON_GPU,
    MINI,
    TRANSFORMERS_GPT2,
    X_TRANSFORMERS_GPT,
    Size,
    of_libraries,
    ours,
    poslab_gpt,
    transformers_gpt2,
    x_transformers_gpt,
)
from benchmarks.measure import Timing, device, now, peak_memory, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.config.nodes import default_scheme
from poslab.config.schema import OptimConfig
from poslab.training.loss import language_model_loss
from poslab.training.machine import keep_freed_memory
from poslab.training.optimizer import make_optimizer

BARE, BARE_MODERN = "torch nanoGPT loop", "torch Llama loop"
# What a rival's user can have as well: the setting that keeps freed memory, a fused optimiser, and a compiled model.
ROTATING = "poslab rope"
TUNED, COMPILED = ", tuned", ", tuned and compiled"
PRECISIONS = {"float32": torch.float32, "bfloat16 autocast": torch.bfloat16}


def rivals(config: BenchmarkConfig) -> list[str]:
    """Return other libraries' models as torch comes and tuned; the bare loop compiled, too."""
    plain = of_libraries([BARE, TRANSFORMERS_GPT2, X_TRANSFORMERS_GPT], config.rivals)
    compiled = [BARE + COMPILED] if BARE in plain else []
    return [*([] if config.tuned else plain), *(name + TUNED for name in plain), *compiled]


def measure_step(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return one table per precision, for model=mini, and for one scheme in its other blocks."""
    names = [*ours(config.schemes), *rivals(config)]
    if ROTATING in ours(config.schemes) and "torch" in config.rivals:
        names += [*(f"{ROTATING}, {block}" for block in BLOCKS if block), BARE_MODERN + COMPILED]
    return _measure(MINI, names, rounds, config.device)


def measure_gpt2_step(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return one table per precision for model=gpt2, for the named schemes or the default one, as each takes 2 GB."""
    size = GPT2 if config.device == "cpu" else GPT2_ON_GPU
    return _measure(size, [*ours(config.schemes or [default_scheme()]), *rivals(config)], rounds, config.device)


def _measure(size: Size, names: list[str], rounds: int, device_name: str) -> list[Table]:
    tables = []
    with processes(names, device_name) as asks:
        ask_any = next(iter(asks.values()))
        for precision, dtype in PRECISIONS.items():
            cases = {name: partial(ask, step_seconds, name, size, dtype) for name, ask in asks.items()}
            timings = take_turns(cases, rounds, warmups=2)
            memory = {name: ask(step_peak_bytes, name, size, dtype) for name, ask in asks.items()}
            tables.append(_table(precision, size, timings, memory, ask_any(products_per_second, dtype)))
    return tables


def _table(
    precision: str, size: Size, timings: dict[str, Timing], memory: dict[str, int | None], highest: float
) -> Table:
    """Return the table of one precision. highest: operations per second that matrix products reach by themselves."""
    tokens = size.batch * size.length
    fastest = min(
        (timing.median for name, timing in timings.items() if not name.startswith("poslab ")), default=math.nan
    )
    columns: dict[str, Callable[[Timing], str]] = {
        "tokens/s": lambda t: f"{tokens / t.median:,.0f}",
        "quartiles": lambda t: f"{tokens / t.upper:,.0f} to {tokens / t.lower:,.0f}",
        "x the fastest rival's speed": lambda t: f"{fastest / t.median:.2f}",
        "of the matrix peak": lambda t: f"{operations(size) / t.median / highest:.0%}",
    }
    title = f"Training step, {precision}, {size.name}, no dropout; matrix products reach {highest / 1e9:,.0f} GFLOP/s"
    table = Table.of(title, timings, columns)
    for name, peak in memory.items():
        table.rows[name]["MB above its weights"] = "" if peak is None else f"{peak / 1e6:,.0f}"
    return table


def operations(size: Size) -> int:
    """Return the floating-point operations of a step's matrix products; in attention only the visible pairs count."""
    of_token = 12 * size.layers * size.embed**2 + size.vocabulary * size.embed + size.layers * size.length * size.embed
    return 6 * size.batch * size.length * of_token


def products_per_second(dtype: torch.dtype) -> float:
    """Return the floating-point operations per second of a product of large matrices, the fastest of several."""
    left, right = torch.randn(2, 2048, 2048).to(device(), dtype).unbind()
    seconds = []
    for _ in range(8):
        started = now()
        left @ right
        seconds.append(now() - started)
    return 2 * 2048**3 / min(seconds)


def step_peak_bytes(name: str, size: Size, dtype: torch.dtype) -> int | None:
    """Return the memory of a training step above weights and optimiser, or None if the system does not report it."""
    return peak_memory(lambda: step_seconds(name, size, dtype))


def step_seconds(name: str, size: Size, dtype: torch.dtype) -> float:
    """Return the time of one training step in that precision."""
    model, loss_of, optimizer = _built(name, size)
    tokens, targets = torch.randint(size.vocabulary, (2, size.batch, size.length)).to(device()).unbind()
    started = now()
    with torch.autocast(device().type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = loss_of(tokens, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return now() - started


@cache
def _built(name: str, size: Size) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], torch.optim.Optimizer]:
    """Return model, loss and optimiser: poslab's as training has them, other libraries' as torch comes, or tuned."""
    schemes, (library, _, setup) = ours(), name.partition(", ")
    if library in schemes or setup:
        keep_freed_memory()
    if library in schemes:
        gpt = poslab_gpt(schemes[library], size, setup).to(device())
        config, node = OptimConfig(1e-3, weight_decay=0.1), {"_target_": "torch.optim.AdamW", "betas": [0.9, 0.99]}
        return gpt, partial(language_model_loss, gpt), make_optimizer(gpt, config, node, fused=True)
    model, loss = _rival(library, size)
    model.to(device())
    if name.endswith(COMPILED):
        loss = torch.compile(loss)
    fused = True if setup else None
    return model, loss, torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.99), weight_decay=0.1, fused=fused)


def _rival(library: str, size: Size) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """Return a library's model and its loss."""
    if library in (BARE, BARE_MODERN):
        bare = BareGPT(size) if library == BARE else BareModernGPT(size)
        return bare, bare.loss
    model = transformers_gpt2(size) if library == TRANSFORMERS_GPT2 else x_transformers_gpt(size)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        logits = model(tokens, use_cache=False).logits if library == TRANSFORMERS_GPT2 else model(tokens)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return model, loss
