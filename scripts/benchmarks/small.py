"""Benchmark of training steps of small models on one thread, beside a bare loop and within a run."""

import io
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from typing import Any
from unittest import mock

import torch
from hydra import compose, initialize_config_dir

from benchmarks.entrants import Size, ours
from benchmarks.measure import Timing, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from benchmarks.step import BARE, TUNED, step_seconds
from poslab.config.files import CONFIGS
from poslab.config.nodes import default_scheme
from poslab.config.train import parse
from poslab.training.figures import TrainingFigures
from poslab.training.train import train

STEPS = 25  # at a time
STEPS_OF_A_RUN = 150
FIRST_STEPS = 5  # which take longer


SIZES = (
    Size(
        "a task's model: 2 layers, D 64, batch 64 x 32", 64, 32, 2, 64, 16,
        ("data=back", "data.steps=0", "data.min_length=32", "data.max_length=32", "data.test_lengths=[32]",
         f"data.validate_every={STEPS_OF_A_RUN}", "model.num_layers=2"),
    ),
    Size(
        "characters: 4 layers, D 128, batch 12 x 64", 12, 64, 4, 128, 65,
        ("experiment=published/nanogpt", "trainer.val_check_interval=null", "trainer.check_val_every_n_epoch=1",
         "trainer.limit_val_batches=0"),
    ),
)  # fmt: skip


def measure_small(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return one table per size; within a run, for the named schemes or the default one."""
    tables = []
    in_runs = ours(config.schemes or [default_scheme()])
    with processes([BARE + TUNED, *ours(config.schemes)]) as asks:
        for size in SIZES:
            timings = take_turns({name: partial(ask, seconds, name, size) for name, ask in asks.items()}, rounds)
            of_runs = {name: asks[name](seconds_in_a_run, name, size) for name in in_runs}
            tables.append(_table(size, timings, of_runs))
    return tables


def _table(size: Size, timings: dict[str, Timing], of_runs: dict[str, tuple[list[float], list[float]]]) -> Table:
    """Return the table of one size. of_runs: the results of `seconds_in_a_run`."""
    bare = timings[BARE + TUNED].median
    ratios = {}
    for name, (of_run, of_loop) in of_runs.items():
        row = f"{name}, in a run"
        timings[row] = Timing.of(of_run)
        ratio = Timing.of([one / other for one, other in zip(of_run, of_loop, strict=True)])
        ratios[row] = f"{ratio.median:.2f} ({ratio.quartiles(digits=2)})"
    table = Table.of(
        f"Training step on one thread, {size.name}, float32, no dropout",
        timings,
        {
            "ms": lambda t: f"{t.median * 1e3:.1f}",
            "quartiles": lambda t: t.quartiles(1e3),
            "tokens/s": lambda t: f"{size.batch * size.length / t.median:,.0f}",
            "x the bare loop's time": lambda t: f"{t.median / bare:.2f}",
        },
    )
    for name, cells in table.rows.items():
        cells["x the steps of a loop in between"] = ratios.get(name, "")
    return table


def seconds(name: str, size: Size, steps: int = STEPS) -> float:
    """Return the time of one training step, the mean of several."""
    torch.set_num_threads(1)
    return sum(step_seconds(name, size, torch.float32) for _ in range(steps)) / steps


def seconds_in_a_run(name: str, size: Size) -> tuple[list[float], list[float]]:
    """Return the times of a run's steps, and of a bare loop's step after each, so that other load affects both.

    The first steps, validations, pictures and the like are left out.
    """
    of_run: list[float] = []
    of_loop: list[float] = []
    ended: list[float] = []
    begin = TrainingFigures.on_train_batch_start

    def begin_after_the_loop_s(figures: TrainingFigures, *batch: Any) -> None:
        of_run.extend(time.perf_counter() - since for since in ended)
        of_loop.append(seconds(name, size, steps=1))
        ended[:] = [time.perf_counter()]
        begin(figures, *batch)

    with tempfile.TemporaryDirectory() as folder, initialize_config_dir(str(CONFIGS), version_base="1.3"):
        own = (f"pos={ours()[name]}", "threads=1", f"trainer.max_steps={STEPS_OF_A_RUN}", f"run_dir={folder}/run")
        config = parse(compose("train", [*size.settings, *own]))
        with (
            mock.patch.object(TrainingFigures, "on_train_batch_start", begin_after_the_loop_s),
            redirect_stdout(io.StringIO()),
        ):
            train(config)
    return of_run[FIRST_STEPS:], of_loop[FIRST_STEPS : len(of_run)]
