"""Continue a prompt with a trained model: `python scripts/generate.py ckpt=RUN_FOLDER prompt="..."`, and `--help`."""

from poslab.commands.cli import run_script
from poslab.settings.scripts import GenerateConfig


def main(config: GenerateConfig) -> None:
    from poslab.commands.generate import run_generation  # after the checks, which don't need torch

    run_generation(config)


if __name__ == "__main__":
    run_script(main, GenerateConfig, "generate")
