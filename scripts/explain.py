"""Explain how position works in a model, as a page: `python scripts/explain.py ckpt=RUN_FOLDER`, and `--help`."""

from poslab.commands.cli import run_script
from poslab.settings.scripts import ExplainConfig


def main(config: ExplainConfig) -> None:
    from poslab.commands.explain import run_explanation  # after the checks, which don't need torch

    run_explanation(config)


if __name__ == "__main__":
    run_script(main, ExplainConfig, "explain")
