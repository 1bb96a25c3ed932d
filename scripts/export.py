"""Export a checkpoint for transformers: `python scripts/export.py ckpt=RUN_FOLDER to=FOLDER`, and `--help`."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["export"].run()
