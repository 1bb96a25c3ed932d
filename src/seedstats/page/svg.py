"""Figures as SVG: files that any program shows, and elements of a page."""

import io
import re
import warnings
import zlib
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from seedstats.page.looks import dark_rules

# Text stays text, which a reader can select, and which the program that shows it sets in a font of its own.
_SETTINGS: Any = {"svg.hashsalt": "seedstats", "svg.fonttype": "none"}
_LARGEST = 1.3  # times its own size, to which a figure grows in a page
_PIXELS = 4 / 3  # of a page in a point of a figure


def svg(figure: Figure) -> str:
    """Return the figure as SVG text, in other colours on a dark screen; equal figures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it leaves room for a box
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = re.sub(r'(?<= d=)"[^"]*"', _rounded, buffer.getvalue())
    dark = f'<style type="text/css">@media (prefers-color-scheme: dark){{{dark_rules()}}}</style>'
    return text.replace("</defs>", f"{dark}</defs>", 1)


def inline(text: str, title: str) -> Markup:
    """Return SVG text as an element of a page whose stylesheet has the colours for a dark screen: as wide as there is
    room, without ids that two figures could share."""
    own = f"f{zlib.crc32(text.encode()):x}"
    text = text[text.index("<svg") :]
    for superfluous in (
        r"<style.*?</style>",
        r"<metadata>.*?</metadata>",
        r' xmlns(:\w+)?="[^"]*"',
        r'(?<=<g) id="[^"]*"',
    ):
        text = re.sub(superfluous, "", text, flags=re.DOTALL)
    for reference in (' id="', "url(#", 'href="#'):
        text = text.replace(reference, reference + own)
    size = re.search(r' width="([\d.]+)pt" height="[^"]*"', text)
    if size:
        largest = f' style="max-width: {_LARGEST * _PIXELS * float(size[1]):.0f}px"'
        text = text.replace(size[0], largest, 1)
    opening = Markup('<svg role="img" aria-label="{}" ').format(title)
    return Markup(re.sub(r">\s+<", "><", text).replace("<svg ", opening, 1))


def _rounded(path: re.Match[str]) -> str:
    """Return a path's data in hundredths of a point, as nobody sees less."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path[0])
