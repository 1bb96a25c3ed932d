"""Try the contract of position schemes on one: `python scripts/check.py my_file.Scheme`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("check")
