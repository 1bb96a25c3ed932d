"""Export a checkpoint for transformers: `python scripts/export.py ckpt=RUN_FOLDER to=FOLDER`, and `--help`."""

from poslab.commands.cli import run_script
from poslab.settings.scripts import ExportConfig


def main(config: ExportConfig) -> None:
    from poslab.commands.export import run_export  # after the checks, which don't need torch

    run_export(config)


if __name__ == "__main__":
    run_script(main, ExportConfig, "export")
