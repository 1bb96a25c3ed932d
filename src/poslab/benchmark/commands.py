"""Whole commands, from the start of the process to its exit."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from poslab.benchmark.entrants import our_schemes
from poslab.benchmark.report import Table
from poslab.benchmark.timing import Timing, take_turns
from poslab.settings.train import CONFIGS

TRAIN = str(CONFIGS.parent / "scripts" / "train.py")
EPOCHS = 4  # of the main job


def measure_startup(rounds: int) -> tuple[dict[str, Any], list[Table]]:
    """Help, an error in a setting, and a run of one training step."""
    one_step = (TRAIN, "trainer.max_steps=1", "trainer.limit_val_batches=0", "sample.new_tokens=0")
    cases: dict[str, Callable[[], None]] = {
        "--help": partial(_run, (TRAIN, "--help")),
        "a wrong setting": partial(_run, (TRAIN, "model.num_heads=0"), expected=2),
        "a run of one training step": partial(_run_in_new_folder, one_step),
    }
    timings = take_turns(cases, rounds)
    table = Table("Start-up, process start to exit", ["", "median s", "quartiles"])
    table.rows = [[name, f"{t.median:.2f}", f"{t.lower:.2f} to {t.upper:.2f}"] for name, t in timings.items()]
    return _raw(timings), [table]


def measure_end_to_end(rounds: int) -> tuple[dict[str, Any], list[Table]]:
    """The main job and the book's script, with the same model, data and epochs."""
    cases: dict[str, Callable[[], None]] = {
        f"poslab {scheme}": partial(_run_in_new_folder, (TRAIN, f"pos={scheme}", f"trainer.max_epochs={EPOCHS}"))
        for scheme in our_schemes()
    }
    notes = [
        f"model=mini, the-verdict.txt, batches of 2, stride 64, dropout 0.1, {EPOCHS} epochs. poslab validates on all "
        "of the validation text after every epoch, writes a sample, pictures and checkpoints; the book's script "
        "evaluates one batch of either side every five steps, writes a sample after every epoch, and saves nothing."
    ]
    if find_spec("llms_from_scratch") is None:
        notes.append("llms-from-scratch is not installed; python -m pip install -e '.[bench]'")
    else:
        cases["the book's script"] = partial(_run, ("-m", "poslab.benchmark.book", str(EPOCHS)))
    timings = take_turns(cases, rounds, warmups=0)
    table = Table("Main job, process start to exit", ["", "median s", "quartiles", "x the book"], notes=notes)
    book = timings.get("the book's script")
    for name, t in timings.items():
        ratio = f"{t.median / book.median:.2f}" if book else "n/a"
        table.rows.append([name, f"{t.median:.1f}", f"{t.lower:.1f} to {t.upper:.1f}", ratio])
    return _raw(timings), [table]


def _run(arguments: tuple[str, ...], expected: int = 0) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise RuntimeError(f"{' '.join(arguments)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")


def _run_in_new_folder(arguments: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run((*arguments, f"run_dir={Path(folder) / 'run'}"))


def _raw(timings: dict[str, Timing]) -> dict[str, Any]:
    return {"seconds": {name: asdict(timing) for name, timing in timings.items()}}
