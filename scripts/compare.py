"""Compare runs: `python scripts/compare.py runs=runs/ablation`, and `--help` for what can be chosen."""

import shlex
import sys

from omegaconf import DictConfig, OmegaConf

from poslab.commands.cli import run_script
from poslab.settings.scripts import CompareConfig, parse_script


def main(config: DictConfig) -> None:
    if config.runs is not None and not OmegaConf.is_list(config.runs):
        config.runs = [config.runs]
    checked = parse_script(CompareConfig, config)
    print("reading runs ...", flush=True)
    from poslab.commands.compare import run_comparison  # after the checks, which don't need torch

    run_comparison(checked, shlex.join(["python", "scripts/compare.py", *sys.argv[1:]]))


if __name__ == "__main__":
    run_script(main, "compare", text="sentence")
