"""Measure poslab beside other libraries: `python scripts/benchmark.py`, and `--help` for what can be chosen."""

import shlex
import sys

from omegaconf import DictConfig

from benchmarks.settings import BenchmarkConfig
from poslab.commands.cli import run_script
from poslab.settings.scripts import parse_script


def main(config: DictConfig) -> None:
    checked = parse_script(BenchmarkConfig, config)
    print("loading torch ...", flush=True)
    from benchmarks.run import run_benchmark  # after the checks, which don't need it

    run_benchmark(checked, shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]]))


if __name__ == "__main__":
    run_script(main, "benchmark")
