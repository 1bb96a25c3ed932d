"""Commands of `poslab`, one per file, and the program that runs them (cli.py)."""
