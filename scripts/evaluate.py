"""Evaluate a checkpoint by length and position: `python scripts/evaluate.py ckpt=RUN_FOLDER`, and `--help`."""

from poslab.commands.cli import run_script
from poslab.settings.scripts import EvaluateConfig


def main(config: EvaluateConfig) -> None:
    from poslab.commands.evaluate import run_evaluation  # after the checks, which don't need torch

    run_evaluation(config)


if __name__ == "__main__":
    run_script(main, EvaluateConfig, "evaluate")
