"""Evaluate a checkpoint by length and position: `python scripts/evaluate.py ckpt=RUN_FOLDER`, and `--help`."""

from omegaconf import DictConfig

from poslab.commands.cli import run_script
from poslab.settings.scripts import EvaluateConfig, parse_script


def main(config: DictConfig) -> None:
    checked = parse_script(EvaluateConfig, config)
    from poslab.commands.evaluate import run_evaluation  # after the checks, which don't need torch

    run_evaluation(checked)


if __name__ == "__main__":
    run_script(main, "evaluate")
