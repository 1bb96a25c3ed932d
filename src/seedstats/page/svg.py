"""Figures as SVG."""

import io
import warnings

import matplotlib
from matplotlib.figure import Figure


def svg(figure: Figure, salt: str = "seedstats", text: str = "path") -> str:
    """Return the figure as SVG text; equal figures give equal text. salt: other names inside, for several in one page.
    text: as "path", or "none" for what a browser sets in a font of its own."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": text}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it draws a box, as a browser would
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
