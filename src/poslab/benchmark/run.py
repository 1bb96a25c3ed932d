"""Runs the groups that were asked for, and writes what is known after each."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poslab.benchmark.attention import measure_attention
from poslab.benchmark.commands import measure_end_to_end, measure_startup
from poslab.benchmark.generation import measure_generation
from poslab.benchmark.report import Table, write
from poslab.benchmark.step import measure_step
from poslab.errors import SettingError
from poslab.settings.scripts import BenchmarkConfig

# How many rounds give a stable median in a reasonable time.
GROUPS: dict[str, tuple[Callable[[int], tuple[dict[str, Any], list[Table]]], int]] = {
    "attention": (measure_attention, 9),
    "step": (measure_step, 9),
    "generate": (measure_generation, 2),
    "startup": (measure_startup, 5),
    "end-to-end": (measure_end_to_end, 2),
}


def run_benchmark(config: BenchmarkConfig, command: str) -> list[Table]:
    """Measures, prints and writes; returns the tables. Raises SettingError for a folder that can't be used."""
    folder = _new_folder(config.out)
    results: dict[str, Any] = {}
    tables: list[Table] = []
    for group in config.groups:
        measure, rounds = GROUPS[group]
        print(f"measuring {group} ...", flush=True)
        results[group], own = measure(config.rounds or rounds)
        for table in own:
            print(table.text(), flush=True)
        tables += own
        write(folder, results, tables, command)
    print(f"\nwritten  {folder / 'benchmark.md'} and {folder / 'benchmark.json'}")
    return tables


def _new_folder(out: str | None) -> Path:
    folder = Path(os.path.expanduser(out)) if out else Path("runs") / f"benchmark-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SettingError("out", str(folder), "is not empty; name a new folder, or an empty one")
    except OSError as error:
        raise SettingError("out", str(folder), f"can't be written: {error.strerror}") from error
    return folder
