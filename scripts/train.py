"""Train a GPT decoder: `python scripts/train.py pos=t5`, and `--help` for everything else."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("train")
