"""How lines are told apart: by colour, marker and dash at once, so that print and the colour-blind lose nothing."""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

# Okabe and Ito 2008, "Color Universal Design": told apart by the colour-blind; without the yellow, too pale on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":")


def looks() -> Iterator[dict[str, Any]]:
    """One after another, for matplotlib's plot; they begin again only after hundreds."""
    for colour, marker, dash in zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES), strict=False):
        yield {"color": colour, "marker": marker, "linestyle": dash}
