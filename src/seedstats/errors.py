"""Errors that a user can put right."""


class BadTable(ValueError):
    """A table that can't be read; the message is one line that names row and column."""
