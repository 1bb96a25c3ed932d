"""Compare runs: `python scripts/compare.py runs=runs/ablation`, and `--help` for what can be chosen."""

from poslab.commands.table import COMMANDS

if __name__ == "__main__":
    COMMANDS["compare"].run()
