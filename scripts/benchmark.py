"""Measure poslab beside other libraries: `python scripts/benchmark.py`, and `--help` for its settings."""

import sys

from benchmarks.settings import BenchmarkConfig
from poslab.commands.cli import plain_command, run_program


def main(config: BenchmarkConfig, typed: str) -> None:
    print("loading torch ...", flush=True)
    from benchmarks.run import run_benchmark  # after the checks, which don't need it

    run_benchmark(config, typed)


if __name__ == "__main__":
    run_program(plain_command("benchmark", BenchmarkConfig, main).run, sys.argv[1:])
