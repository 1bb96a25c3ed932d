"""Benchmark of whole commands, from the start of the process to its exit."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import Timing, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig

TRAIN = Path(__file__).parents[1] / "train.py"


def measure_startup(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return a table of --help, an error in a setting, and a run of one training step."""
    cases: dict[str, Callable[[], None]] = {
        "--help": partial(_train, 0, "--help"),
        "a wrong setting": partial(_train, 2, "model.num_heads=0"),
        "a run of one training step": _train_one_step,
    }
    timings = take_turns(cases, rounds)
    columns: dict[str, Callable[[Timing], str]] = {
        "median s": lambda t: f"{t.median:.2f}",
        "quartiles": lambda t: t.quartiles(digits=2),
    }
    return [Table.of("Start-up, process start to exit", timings, columns)]


def _train(exit_code: int, *arguments: str) -> None:
    done = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != exit_code:
        raise RuntimeError(f"train.py {' '.join(arguments)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")


def _train_one_step() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = ("trainer.max_steps=1", "trainer.limit_val_batches=0", "sample.new_tokens=0")
        _train(0, *settings, f"run_dir={Path(folder) / 'run'}")
