"""Full training steps at equal size: tokens per second, ours and other libraries'."""

import time
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.entrants import (
    CONTEXT,
    TRANSFORMERS_GPT2,
    VOCABULARY,
    X_TRANSFORMERS_GPT,
    ours,
    poslab_gpt,
    transformers_gpt2,
    x_transformers_gpt,
)
from benchmarks.measure import Timing, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.settings.schema import OptimConfig
from poslab.training.loss import language_model_loss
from poslab.training.memory import keep_freed_memory
from poslab.training.optim import make_optimizer

BATCH = 4
PRECISIONS = {"float32": torch.float32, "bfloat16 autocast": torch.bfloat16}


def measure_step(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """One table per precision."""
    tables = []
    with processes([*ours(config.schemes), TRANSFORMERS_GPT2, X_TRANSFORMERS_GPT]) as asks:
        for precision, dtype in PRECISIONS.items():
            cases = {name: partial(ask, step_seconds, name, dtype) for name, ask in asks.items()}
            tables.append(_table(precision, take_turns(cases, rounds, warmups=2)))
    return tables


def _table(precision: str, timings: dict[str, Timing]) -> Table:
    tokens = BATCH * CONTEXT
    fastest = min(timing.median for timing in timings.values())
    return Table.of(
        f"Training step, {precision}, model=mini, batch {BATCH} x {CONTEXT}, no dropout",
        timings,
        {
            "tokens/s": lambda t: f"{tokens / t.median:,.0f}",
            "quartiles": lambda t: f"{tokens / t.upper:,.0f} to {tokens / t.lower:,.0f}",
            "x the fastest's time": lambda t: f"{t.median / fastest:.2f}",
        },
    )


def step_seconds(name: str, dtype: torch.dtype) -> float:
    """Time of one training step in that precision."""
    model, loss_of, optimizer = _built(name)
    tokens, targets = torch.randint(VOCABULARY, (2, BATCH, CONTEXT)).unbind()
    started = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = loss_of(tokens, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - started


@cache
def _built(name: str) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], torch.optim.Optimizer]:
    """Model, loss and optimiser: ours as training has them, other libraries' with torch's own."""
    if name in (schemes := ours()):
        keep_freed_memory()
        gpt = poslab_gpt(schemes[name])
        config = OptimConfig(1e-3, weight_decay=0.1, beta1=0.9, beta2=0.99, warmup_share=0.1, final_share=0.1)
        return gpt, partial(language_model_loss, gpt), make_optimizer(gpt, config, fused=True)
    model = transformers_gpt2() if name == TRANSFORMERS_GPT2 else x_transformers_gpt()

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        logits = model(tokens, use_cache=False).logits if name == TRANSFORMERS_GPT2 else model(tokens)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
