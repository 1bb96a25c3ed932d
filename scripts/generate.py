"""Continue a prompt with a trained model: `python scripts/generate.py ckpt=RUN_FOLDER prompt="..."`, and `--help`."""

from omegaconf import DictConfig

from poslab.commands.cli import run_script
from poslab.settings.scripts import GenerateConfig, parse_script


def main(config: DictConfig) -> None:
    checked = parse_script(GenerateConfig, config)
    from poslab.commands.generate import run_generation  # after the checks, which don't need torch

    run_generation(checked)


if __name__ == "__main__":
    run_script(main, "generate", text="prompt", many_texts=True)
