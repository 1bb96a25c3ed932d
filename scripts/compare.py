"""Compare runs: `python scripts/compare.py runs=runs/ablation`, and `--help` for its settings."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["compare"].run()
