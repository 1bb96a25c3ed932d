"""Looks of lines, and labels, in figures."""

import textwrap
from collections.abc import Iterator
from itertools import cycle
from typing import Any

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00",
            "#6A3D9A", "#8C4A2F", "#7F7F7F", "#A50026", "#808000")  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.")


def looks() -> Iterator[dict[str, Any]]:
    """Return looks of lines, for matplotlib's plot: colour, marker and dash change at once, so that print and the
    colour-blind lose nothing. They repeat only after hundreds."""
    for colour, marker, dash in zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES), strict=False):
        yield {"color": colour, "marker": marker, "linestyle": dash}


def wrapped(label: str, width: int = 36) -> str:
    """Break a label into lines of at most `width` characters that a figure can show."""
    return "\n".join(printable(line) for line in textwrap.wrap(label, width))


def printable(word: str) -> str:
    """Replace characters that no figure shows: a dollar sign would begin a formula, and an SVG holds no control
    characters."""
    visible = (c if c.isprintable() else "␣" if c.isspace() else "�" for c in word.replace("\n", "↵"))
    return "".join(visible).strip().replace("$", r"\$") or "␣"
