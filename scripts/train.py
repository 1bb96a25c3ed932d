"""Train a GPT decoder: `python scripts/train.py pos=t5`, and `--help` for everything else."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["train"].run()
