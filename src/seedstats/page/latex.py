"""Tables as LaTeX that compiles without packages."""

from collections.abc import Iterable

from seedstats.page.blocks import Cell, Table

_ESCAPED = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
    "|": "$|$", "±": r"$\pm$", "×": r"$\times$", "–": "--", "—": "---", "\n": " ",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}  # fmt: skip


def table(content: Table) -> str:
    """Return a tabular environment: a line for each row, marked cells bold. Characters beyond Latin-1, which need a
    package, become question marks."""
    columns = "l" + "r" * (len(content.columns) - 1)
    lines = [_line(content.columns), r"\hline", *map(_line, content.rows)]
    lines += [r"\hline", *map(_line, content.foot)] if content.foot else []
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *lines, r"\end{tabular}", ""])


def text(content: str) -> str:
    """Return text with what LaTeX would obey escaped."""
    escaped = "".join(_ESCAPED.get(mark, mark) for mark in content)
    return escaped.encode("latin-1", errors="replace").decode("latin-1")


def _line(row: Iterable[str | Cell]) -> str:
    cells = [Cell(cell) if isinstance(cell, str) else cell for cell in row]
    bold = [rf"\textbf{{{text(cell.text)}}}" if cell.marked else _signed(text(cell.text)) for cell in cells]
    return " & ".join(bold) + r" \\"


def _signed(number: str) -> str:
    """Return a number below 0 with a minus instead of a hyphen."""
    return f"${number}$" if number[:1] == "-" and number[1:].replace(".", "").isdigit() else number
