"""Durations and tables for the screen."""

from collections.abc import Sequence


def clock(seconds: float) -> str:
    """Write seconds as minutes and hours: 75 -> "1:15"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def printable(text: str) -> str:
    """Replace each character that a terminal would obey by a dot."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{MIDDLE DOT}" for c in text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "<") -> str:
    """Lay out lines of columns as wide as their widest cell.

    align: a character for each column, "<" for text and ">" for numbers; the columns beyond hold numbers.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(table_line(cells, widths, align) for cells in (header, *rows))


def table_line(cells: Sequence[str], widths: Sequence[int], align: str = "<") -> str:
    """Lay out one line of a table whose rows are not all known yet."""
    sides = align.ljust(len(cells), ">")
    return "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, sides, widths, strict=True)).rstrip()
