"""Export a checkpoint for transformers: `python scripts/export.py ckpt=RUN_FOLDER to=FOLDER`, and `--help`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("export")
