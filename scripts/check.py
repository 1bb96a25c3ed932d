"""Test a position scheme or a part of the block: `python scripts/check.py my_file.Scheme`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("check")
