"""Comparison of all pairs of groups as a matrix."""

from seedstats.comparison import Comparison
from seedstats.finding import p_text
from seedstats.metric import fixed
from seedstats.page.blocks import Cell, Row, Table
from seedstats.statistics.paired import Difference


def matrix(comparison: Comparison) -> Table | None:
    """Return the matrix from the best group to the worst, each row ahead of those below it.

    Empty cells are those across the diagonal, with the other sign. None if only the baseline was compared, or for a
    single pair, which the table covers.
    """
    labels = [group.label for group in comparison.groups]
    if len(comparison.pairs) < 2:
        return None
    rows: list[Row] = []
    for place, first in enumerate(labels[:-1]):
        others = labels[place + 1 :]
        cells = [_cell(comparison, first, second, comparison.pairs[first, second]) for second in others]
        rows.append([f"{place + 1} {first}", *[""] * place, *cells])
    columns: Row = ["", *(Cell(str(number), label) for number, label in enumerate(labels[1:], start=2))]
    note = (
        f"Groups are ordered from best to worst. A cell is the row's {comparison.metric.title} minus that of the group "
        "with the column's number, over common seeds. Marked pairs are shown to differ, after Holm's correction "
        f"for {comparison.comparisons} comparisons."
    )
    return Table("All pairs", columns, rows, note, "dimmed", "Point at a cell for its interval and p.")


def _cell(comparison: Comparison, first: str, second: str, d: Difference) -> Cell:
    if d.mean is None:
        return Cell("n/a", f"{first} and {second} have no seed in common")
    text = comparison.metric.text
    interval = f" [{', '.join(text(end, '+') for end in d.interval)}]" if d.interval else ""
    p = "" if d.p_value is None else f", p = {p_text(d.p_value)}"
    told = f"{first} - {second}: {text(d.mean, '+')}{interval}, n = {d.n}{p}"
    return Cell(fixed(d.mean, 3, "+"), told, d.significant)
