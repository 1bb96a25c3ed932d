"""Benchmark of whole commands, from the start of the process to its exit."""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measure import take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig

TRAIN = Path(__file__).parents[1] / "train.py"


def measure_startup(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return a table of --help, an error in a setting, and a run of one training step."""
    timings = take_turns(
        {
            "--help": partial(_seconds, 0, "--help"),
            "a wrong setting": partial(_seconds, 2, "model.num_heads=0"),
            "a run of one training step": _seconds_of_one_step,
        },
        rounds,
    )
    columns = {"median s": lambda t: f"{t.median:.2f}", "quartiles": lambda t: t.quartiles(digits=2)}
    return [Table.of("Start-up, process start to exit", timings, columns)]


def _seconds(exit_code: int, *arguments: str) -> float:
    """Return the time of train.py with these arguments. Raises RuntimeError if it ends with another code."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != exit_code:
        raise RuntimeError(f"train.py {' '.join(arguments)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - started


def _seconds_of_one_step() -> float:
    with tempfile.TemporaryDirectory() as folder:
        settings = ("trainer.max_steps=1", "trainer.limit_val_batches=0", "sample.new_tokens=0")
        return _seconds(0, *settings, f"run_dir={folder}/run")
