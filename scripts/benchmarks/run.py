"""Run of the selected benchmark groups, which writes the results so far after each."""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.attention import measure_attention
from benchmarks.bfloat16 import measure_bfloat16
from benchmarks.compare import measure_compare
from benchmarks.generate import measure_generation
from benchmarks.profile import measure_profile
from benchmarks.report import Table, write
from benchmarks.settings import BenchmarkConfig
from benchmarks.small import measure_small
from benchmarks.startup import measure_startup
from benchmarks.step import measure_gpt2_step, measure_step
from poslab.config.files import require_writable
from poslab.errors import SettingError
from poslab.runs.checkpoint import choose_device

# How many rounds give a stable median in a reasonable time.
MEASURES: dict[str, tuple[Callable[[BenchmarkConfig, int], list[Table]], int]] = {
    "attention": (measure_attention, 9),
    "bfloat16": (measure_bfloat16, 9),
    "step": (measure_step, 9),
    "gpt2": (measure_gpt2_step, 5),
    "profile": (measure_profile, 5),
    "small": (measure_small, 5),
    "generate": (measure_generation, 2),
    "startup": (measure_startup, 5),
    "compare": (measure_compare, 1),
}


def run_benchmark(config: BenchmarkConfig, command: str) -> None:
    """Measure, print and write. Raises SettingError for a folder that can't be used, and where there is no such GPU."""
    choose_device(config.device)
    folder = Path(config.out or f"runs/benchmark-{time.strftime('%Y%m%d-%H%M%S')}").expanduser()
    require_writable("out", folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SettingError("out", str(folder), "is not empty; name a new folder, or an empty one")
    tables: list[Table] = []
    for group in config.groups:
        measure, rounds = MEASURES[group]
        print(f"measuring {group} ...", flush=True)
        for table in measure(config, config.rounds or rounds):
            print(table.text(), flush=True)
            tables.append(table)
        write(folder, tables, command)
    print(f"\nwritten  {folder / 'benchmark.md'} and {folder / 'benchmark.json'}")
