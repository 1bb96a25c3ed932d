"""Evaluate a checkpoint by length and position: `python scripts/evaluate.py ckpt=RUN_FOLDER`, and `--help`."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["evaluate"].run()
