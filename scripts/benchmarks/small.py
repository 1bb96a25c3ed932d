"""Training steps of small models on one thread, where what surrounds the arithmetic counts: beside a bare loop, and as
they are within a run."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.bare import BareGPT
from benchmarks.entrants import Size, ours, poslab_gpt
from benchmarks.measure import Timing, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from benchmarks.startup import TRAIN
from poslab.settings.schema import OptimConfig
from poslab.settings.schemes import default_scheme
from poslab.training.loss import language_model_loss
from poslab.training.memory import keep_freed_memory
from poslab.training.optim import make_optimizer

BARE = "torch bare loop"
STEPS = 25  # at a time
STEPS_OF_A_RUN = 200


SIZES = (
    Size(
        "a task's model: 2 layers, D 64, batch 64 x 32", 64, 32, 2, 64, 16,
        ("data=back", "data.steps=0", "data.min_length=32", "data.max_length=32", "data.test_lengths=[32]",
         f"data.validate_every={STEPS_OF_A_RUN}", "model.num_layers=2"),
    ),
    Size(
        "characters: 4 layers, D 128, batch 12 x 64", 12, 64, 4, 128, 65,
        ("experiment=nanogpt_cpu", "trainer.val_check_interval=null", "trainer.check_val_every_n_epoch=1",
         "trainer.limit_val_batches=0"),
    ),
)  # fmt: skip


def measure_small(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """One table per size; within a run, of the schemes that are named, or the default one."""
    tables = []
    in_runs = config.schemes or [default_scheme()]
    with processes([BARE, *ours(config.schemes)]) as asks:
        for size in SIZES:
            for name, ask in asks.items():
                ask(seconds, name, size)  # to warm up, which runs need not
            cases: dict[str, Callable[[], float]] = {
                name: partial(ask, seconds, name, size) for name, ask in asks.items()
            }
            cases |= {f"poslab {scheme}, in a run": partial(seconds_in_a_run, scheme, size) for scheme in in_runs}
            tables.append(_table(size, take_turns(cases, rounds, warmups=0)))
    return tables


def _table(size: Size, timings: dict[str, Timing]) -> Table:
    bare = timings[BARE].median
    return Table.of(
        f"Training step on one thread, {size.name}, float32, no dropout",
        timings,
        {
            "ms": lambda t: f"{t.median * 1e3:.1f}",
            "quartiles": lambda t: t.quartiles(1e3),
            "tokens/s": lambda t: f"{size.batch * size.length / t.median:,.0f}",
            "x the bare loop's time": lambda t: f"{t.median / bare:.2f}",
        },
    )


def seconds(name: str, size: Size) -> float:
    """Time of one training step, the mean of STEPS."""
    torch.set_num_threads(1)
    model, loss_of, optimizer = _built(name, size)
    started = time.perf_counter()
    for _ in range(STEPS):
        tokens, targets = torch.randint(size.vocabulary, (2, size.batch, size.length)).unbind()
        loss_of(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - started) / STEPS


def seconds_in_a_run(scheme: str, size: Size) -> float:
    """Time of one training step, the mean of a run's; validations, pictures and the like left out."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        own = (f"pos={scheme}", "threads=1", f"trainer.max_steps={STEPS_OF_A_RUN}", f"run_dir={run}")
        done = subprocess.run([sys.executable, str(TRAIN), *size.settings, *own], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"a run of {scheme} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        tokens_per_s: float = json.loads((run / "summary.json").read_text())["tokens_per_s"]
    return size.batch * size.length / tokens_per_s


@cache
def _built(name: str, size: Size) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], torch.optim.Optimizer]:
    """Model, loss and optimiser, as training has them."""
    keep_freed_memory()
    if name == BARE:
        bare = BareGPT(size)
        return bare, bare.loss, torch.optim.AdamW(bare.parameters(), 1e-3, (0.9, 0.99), weight_decay=0.1, fused=True)
    gpt = poslab_gpt(ours()[name], size)
    config = OptimConfig(1e-3, weight_decay=0.1, beta1=0.9, beta2=0.99, warmup_share=0.1, final_share=0.1)
    return gpt, partial(language_model_loss, gpt), make_optimizer(gpt, config, fused=True)
