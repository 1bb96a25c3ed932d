"""Blocks as GitHub's markdown, with pictures in files."""

import html
import re
from collections.abc import Iterable, Sequence
from itertools import chain, repeat, zip_longest
from textwrap import indent

from seedstats.page.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Definitions,
    Details,
    Figure,
    Gallery,
    Heading,
    Opening,
    Table,
    Text,
)
from seedstats.page.terminal import visible


def page(title: str, blocks: Sequence[Block]) -> str:
    """Return the page; its pictures are expected in figures/, by their names."""
    return "\n\n".join([f"# {_text(title)}", *_all(blocks, 2)]) + "\n"


def _all(blocks: Iterable[Block], level: int) -> list[str]:
    """Return the paragraphs of blocks whose titles are headings of that level."""
    return [paragraph for block in blocks for paragraph in _block(block, level) if paragraph]


def _block(block: Block, level: int) -> list[str]:
    match block:
        case Heading(title, blocks):
            return [_heading(title, level), *_all(blocks, level + 1)]
        case Text(text):
            return [_text(text)]
        case Bullets(items):
            return ["\n".join(f"- {_text(item)}" for item in items)]
        case Table():
            return [_heading(block.title, level), _table(block), _text(block.note)]
        case Figure():
            title = "" if block.small else _heading(block.title, level)
            pictures = " ".join(f"![{_text(block.title)}](figures/{file})" for file in block.files)
            return [title, pictures, _text(block.caption)]
        case Gallery(figures):
            return _all(figures, level)
        case Opening(text, figure):
            return [*_all(text, level), *_block(figure, level)]
        case Details(summary, blocks, is_open):
            opening = f"<details{' open' * is_open}><summary>{html.escape(summary)}</summary>"
            return [opening, *_all(blocks, level + 1), "</details>"]
        case Code(text):
            return [indent(text.rstrip("\n"), "    ")]
        case Definitions(items):
            return ["\n".join(f"- {_text(term)}: {_text(value)}" for term, value in items.items())]


# Marks that Markdown reads: of code, emphasis, formulas and escapes anywhere, "_" at the edge of a word, what begins a
# tag or an entity, what stands between the brackets of a link, and what begins a heading, a list or a quotation.
_MARKS = re.compile(
    r"[\\`*~$]|(?<![^\W_])_|_(?![^\W_])|<(?=[a-zA-Z/!?])|&(?=#?\w+;)|(?<=\])[(\[:]"
    r"|^>|^#(?=#*\s)|^[+-](?=\s)|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)"
)


def _text(text: str) -> str:
    """Escape what would not stand there as it is, as in the name of a scheme or a folder."""
    return _MARKS.sub(r"\\\g<0>", visible(" ".join(text.splitlines())))


def _heading(title: str, level: int) -> str:
    return f"{'#' * level} {_text(title)}" if title else ""


def _table(table: Table) -> str:
    groups = chain.from_iterable(repeat(f"{name} ", count) for name, count in table.headings)
    names = [_cell(cell) for cell in table.columns]
    heads = zip_longest(names[1:], groups, fillvalue="")
    told_apart = len({*names}) == len(names)
    columns = [*names[:1], *(name if told_apart else group + name for name, group in heads)]
    lines = [columns, ["---"] * len(columns), *(map(_cell, row) for row in [*table.rows, *table.foot])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: str | Cell) -> str:
    text = _text(cell if isinstance(cell, str) else cell.text).replace("|", "\\|")
    return f"**{text}**" if isinstance(cell, Cell) and cell.marked and text else text
