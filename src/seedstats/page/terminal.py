"""Blocks, tables and durations on a terminal."""

from collections.abc import Sequence

from seedstats.page.blocks import Block, Bullets, Cell, Heading, Opening, Table, Text

_BEFORE = {"answer": "- ", "plain": "- ", "caveat": "  caveat: "}


def page(blocks: Sequence[Block]) -> str:
    """Return the lines of a page: sentences, and of tables the columns that fit, without their notes.

    Figures and what is folded away are for the other renderers.
    """
    before, lines = None, list[str]()
    for block in blocks:
        if text := _block(block):
            lines += ["", text] if isinstance(block, Table) and isinstance(before, Bullets) else [text]
            before = block
    return visible("\n".join(lines))


def _block(block: Block) -> str:
    match block:
        case Heading(title, blocks):
            return f"\n{title}\n\n{page(blocks)}"
        case Text(text, _, caveat):
            return f"{_BEFORE['caveat']}{text}" if caveat else text
        case Opening(text):
            return page(text)
        case Bullets(items, kind):
            return "\n".join(_BEFORE[kind] + item for item in items)
        case Table():
            shown = block.narrow or range(len(block.columns))
            lines = (block.columns, *block.rows, *block.foot)
            header, *rows = ([_text(row[n]) for n in shown] for row in lines)
            return f"{table(header, rows)}\n"
        case _:
            return ""


def _text(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


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


def clock(seconds: float) -> str:
    """Write seconds as minutes and hours: 75 -> "1:15"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def visible(text: str) -> str:
    """Replace each character that a terminal would obey by a dot."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{MIDDLE DOT}" for c in text)
