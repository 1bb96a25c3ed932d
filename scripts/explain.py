"""Explain how position works in a model, as a page: `python scripts/explain.py ckpt=RUN_FOLDER`, and `--help`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("explain")
