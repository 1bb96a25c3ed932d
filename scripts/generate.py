"""Continue a prompt with a trained model: `python scripts/generate.py ckpt=RUN_FOLDER prompt="..."`, and `--help`."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["generate"].run()
