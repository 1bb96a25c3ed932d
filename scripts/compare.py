"""Compare runs: `python scripts/compare.py runs=runs/ablation`, and `--help` for its settings."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("compare")
