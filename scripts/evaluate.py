"""Evaluate a checkpoint by length and position: `python scripts/evaluate.py ckpt=RUN_FOLDER`, and `--help`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("evaluate")
