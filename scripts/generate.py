"""Continue a prompt with a trained model: `python scripts/generate.py ckpt=RUN_FOLDER prompt="..."`, and `--help`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("generate")
