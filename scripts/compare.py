"""Compare runs: `python scripts/compare.py runs=runs/ablation`, and `--help` for what can be chosen."""

import shlex
import sys

from poslab.commands.cli import run_script
from poslab.settings.scripts import CompareConfig


def main(config: CompareConfig) -> None:
    print("reading runs ...", flush=True)
    from poslab.commands.compare import run_comparison  # after the checks, which don't need torch

    run_comparison(config, shlex.join(["python", "scripts/compare.py", *sys.argv[1:]]))


if __name__ == "__main__":
    run_script(main, CompareConfig, "compare")
