"""Tables as LaTeX that compiles without packages."""

import re
from collections.abc import Iterable

from seedstats.page.blocks import Cell, Table

_ESCAPED = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
    "|": "$|$", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "—": "---", "\xa0": "~",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}  # fmt: skip
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_ESCAPED |= {
    letter: f"$\\{name}$" for letter, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)
}
# What LaTeX's own fonts have beside ASCII: Latin letters up to U+017E, but for some.
_WITHOUT_PACKAGES = {*map(chr, range(0xA1, 0x17F)), *"‘’“”…€→"} - {*"«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų"}


def table(content: Table) -> str:
    """Return a tabular environment: a line for each row, marked cells bold. Characters that need a package become their
    numbers, as U+6CE8, so that names stay different."""
    columns = "l" + "r" * (len(content.columns) - 1)
    lines = [_line(content.columns), r"\hline", *map(_line, content.rows)]
    lines += [r"\hline", *map(_line, content.foot)] if content.foot else []
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *lines, r"\end{tabular}", ""])


def text(content: str) -> str:
    """Return text with what LaTeX would obey escaped."""
    return "".join(map(_character, content))


def _character(mark: str) -> str:
    if mark in _ESCAPED:
        return _ESCAPED[mark]
    if mark.isspace():
        return " "
    if mark in _WITHOUT_PACKAGES or (mark.isascii() and mark.isprintable()):
        return mark
    return f"U+{ord(mark):04X}"


def _line(row: Iterable[str | Cell]) -> str:
    cells = [Cell(cell) if isinstance(cell, str) else cell for cell in row]
    # Numbers below 0 have a minus instead of a hyphen.
    signed = [re.sub(r"(?<![\w.])-(?=\.?\d)", "$-$", text(cell.text)) for cell in cells]
    bold = [rf"\textbf{{{content}}}" if cell.marked else content for content, cell in zip(signed, cells, strict=True)]
    return " & ".join(bold) + r" \\"
