"""Measure poslab beside other libraries: `python scripts/benchmark.py`, and `--help` for its settings."""

import shlex
import sys

from benchmarks.settings import BenchmarkConfig
from poslab.commands.cli import run_script


def main(config: BenchmarkConfig) -> None:
    print("loading torch ...", flush=True)
    from benchmarks.run import run_benchmark  # after the checks, which don't need it

    run_benchmark(config, shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]]))


if __name__ == "__main__":
    run_script(main, BenchmarkConfig, "benchmark")
