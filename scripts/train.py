"""Train a GPT decoder: `python scripts/train.py pos=t5`, and `--help` for everything else."""

from poslab.commands.train import run_train

if __name__ == "__main__":
    run_train()
