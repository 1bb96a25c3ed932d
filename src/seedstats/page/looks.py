"""Looks of lines, colours and labels in figures and pages.

A name has the same colour wherever it stands: on all figures of a page, and on pages of other names. Each colour has a
second one for dark screens, which `dark_rules` puts in its place.
"""

import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

# (on white, on black). The first four are Okabe and Ito's, which the colour-blind can tell apart, or nearly those.
COLOURS = (
    ("#0072b2", "#56aeea"),
    ("#d55e00", "#ff9a52"),
    ("#00906a", "#3fcfa0"),
    ("#c2528b", "#f090c2"),
    ("#b58500", "#e8c04a"),
    ("#6a4fb3", "#b09cf5"),
    ("#1490a5", "#5bd2e4"),
    ("#b3202c", "#f87f86"),
    ("#8c4a2f", "#d09a7e"),
    ("#6b7d12", "#b9cc55"),
    ("#6b7280", "#aab2bd"),
)
INK = ("#1b1e23", "#e7e9ec")  # text and lines that are not a name's
SOFT = ("#59616c", "#a4acb6")  # what is secondary
LINE = ("#dce0e5", "#343a42")  # grids and rules
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.")
# The first value, tried from 0 on, at which the eleven encodings that are compared most often have eleven colours.
_SALT = 742424

# Settings of matplotlib for every figure: `matplotlib.rc_context(STYLE)`.
STYLE: Any = {
    "font.size": 11,
    "axes.labelsize": 10,
    "text.color": INK[0],
    "axes.labelcolor": SOFT[0],
    "axes.edgecolor": SOFT[0],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.color": LINE[0],
    "grid.linewidth": 0.8,
    "xtick.color": SOFT[0],
    "ytick.color": SOFT[0],
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def looks() -> Iterator[dict[str, Any]]:
    """Return looks of lines, for matplotlib's plot: colour, marker and dash change at once, so that print and the
    colour-blind lose nothing. They repeat only after hundreds."""
    return map(_look, count())


def looks_of(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return a look for each label, a name with its settings, "rope base=100".

    The colour is the name's, and only where two names want the same one it depends on which others there are. Labels of
    one name differ in marker and dash; where there is but one name, they differ in their colours, too.
    """
    ordered = sorted(labels)
    names = {label: name_of(label) for label in ordered}
    if len(set(names.values())) == 1:
        names = {label: label for label in ordered}
    numbers = numbers_of(names.values())
    line_looks, shown = {}, dict.fromkeys(numbers, 0)
    for label, name in names.items():
        line_looks[label] = _look(numbers[name], shown[name])
        shown[name] += 1
    return line_looks


def name_of(label: str) -> str:
    """Return a label without the settings at its end."""
    return re.sub(r"( [\w.]+=\S*)+$", "", label)


def numbers_of(names: Iterable[str]) -> dict[str, int]:
    """Return a number for each name: that of its colour or, where that is taken, of a free one, or beyond them all."""
    numbers: dict[str, int] = {}
    left = []
    for name in sorted(set(names)):
        wanted = zlib.crc32(f"{_SALT} {name}".encode(errors="replace")) % len(COLOURS)
        if wanted in numbers.values():
            left.append((name, wanted))
        else:
            numbers[name] = wanted
    for name, wanted in left:
        free = [(wanted + step) % len(COLOURS) for step in range(len(COLOURS))]
        taken = set(numbers.values())
        numbers[name] = next(n for n in chain(free, count(len(COLOURS))) if n not in taken)
    return numbers


def _look(number: int, variant: int = 0) -> dict[str, Any]:
    marker = _MARKERS[(number + variant) % len(_MARKERS)]
    dash = _DASHES[(number + variant) % len(_DASHES)]
    return {"color": COLOURS[number % len(COLOURS)][0], "marker": marker, "linestyle": dash}


def shades(colour: str = COLOURS[0][0]) -> LinearSegmentedColormap:
    """Return a colour map from the background, whichever it is, to a colour."""
    rgb = to_rgb(colour)
    return LinearSegmentedColormap.from_list("shades", [(*rgb, 0.0), (*rgb, 1.0)])


def two_shades() -> LinearSegmentedColormap:
    """Return a colour map for values about 0: blue, the background, orange."""
    low, high = to_rgb(COLOURS[0][0]), to_rgb(COLOURS[1][0])
    ends = [(0.0, (*low, 1.0)), (0.5, (*low, 0.0)), (0.5, (*high, 0.0)), (1.0, (*high, 1.0))]
    return LinearSegmentedColormap.from_list("two shades", ends)


def dark_rules() -> str:
    """Return rules of CSS that give figures, as SVG, the colours for a dark screen."""
    rules = []
    for light, dark in (*COLOURS, INK, SOFT, LINE):
        rules += [f'[style*="{way}: {light}"]{{{way}:{dark}!important}}' for way in ("fill", "stroke")]
    return "".join(rules)


def properties(dark: bool) -> str:
    """Return the colours as custom properties of CSS: --c0, --c1, ..., --ink, --soft and --line."""
    named: Mapping[str, tuple[str, str]] = {
        **{f"c{number}": pair for number, pair in enumerate(COLOURS)},
        "ink": INK,
        "soft": SOFT,
        "line": LINE,
    }
    return "".join(f"--{name}:{pair[dark]};" for name, pair in named.items())


def styled() -> Any:
    """Return a context, or decorator, within which figures are made in the style of the pages."""
    return matplotlib.rc_context(STYLE)


def new_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a panel of that size in inches, and its axes; to be called where figures are `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid()
    return figure, axes


def wrapped(label: str, width: int = 36) -> str:
    """Break a label into lines of at most `width` characters that a figure can show."""
    return "\n".join(printable(line) for line in textwrap.wrap(label, width))


def printable(word: str) -> str:
    """Replace characters that no figure shows: a dollar sign would begin a formula, an SVG holds no control characters,
    and a legend leaves out what begins with "_", which gets an empty character before it."""
    visible = (c if c.isprintable() else "␣" if c.isspace() else "�" for c in word.replace("\n", "↵"))
    text = "".join(visible).strip().replace("$", r"\$") or "␣"
    return f"\u200b{text}" if text.startswith("_") else text
