"""`python -m poslab COMMAND ...` is `poslab COMMAND ...`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main()
