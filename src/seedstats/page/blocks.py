"""Blocks: the content of a report, whatever it is rendered to.

`html`, `markdown` and `terminal` each render all of them. Texts are plain: renderers escape them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Heading:
    """Title with the blocks below it; its level is its depth in the page. anchor: its id, for links. folded: whether a
    browser shows the title alone until it is clicked; print and markdown show all."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Text:
    """Paragraph. large: the answer that a page begins with. caveat: it weakens that."""

    text: str
    large: bool = False
    caveat: bool = False


@dataclass(frozen=True)
class Bullets:
    """List of sentences. links: for each item the anchor of a heading, to which its text up to the colon leads."""

    items: Sequence[str]
    kind: Literal["plain", "answer", "caveat"] = "plain"
    links: Sequence[str] = ()


DARKEST = 10  # shade


class Cell(NamedTuple):
    """Cell of a table. tooltip: shown under the mouse. shade: from 0, white, to DARKEST."""

    text: str
    tooltip: str = ""
    marked: bool = False
    shade: int | None = None


Row: TypeAlias = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """Table with a title above it and a note below. All rows have as many cells as there are columns.

    kind: the class in page.html: "dimmed" for numbers in grey, out of which marked ones stand out, "symbols" for short
    words in a font of fixed width, of which marked ones are errors. words: the columns whose cells are set as text, to
    the left and in several lines. hint: a note on colours and tooltips, in html only.
    highlight: first cell of the row that stands out. foot: rows that are not sorted. sorted_by: the column by which
    the rows are sorted, and how. narrow: the columns that fit on a terminal; none: all. headings: above the
    columns after the first, each with the number of columns below it. folded: as of a Heading.
    """

    title: str
    columns: Row
    rows: Sequence[Row]
    note: str = ""
    kind: Literal["", "dimmed", "symbols"] = ""
    hint: str = ""
    anchor: str = ""
    highlight: str | None = None
    foot: Sequence[Row] = ()
    sortable: bool = False
    sorted_by: tuple[int, Literal["ascending", "descending"]] | None = None
    narrow: Sequence[int] = ()
    headings: Sequence[tuple[str, int]] = ()
    words: Sequence[int] = ()
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """Figure with a title and a caption: panels, which stand side by side where there is room. name: its id, and that
    of its files. small: it is part of a gallery. folded: as of a Heading."""

    name: str
    title: str
    caption: str
    panels: Sequence[Drawing]
    small: bool = False
    folded: bool = False

    @property
    def files(self) -> dict[str, str]:
        """Return the panels as SVG text, by the names of their files."""
        if len(self.panels) == 1:
            return {f"{self.name}.svg": self.svgs[0]}
        return {f"{self.name}_{number}.svg": text for number, text in enumerate(self.svgs, 1)}

    @cached_property
    def svgs(self) -> list[str]:
        from seedstats.page import svg  # loads matplotlib

        return [svg.svg(panel) for panel in self.panels]


@dataclass(frozen=True)
class Gallery:
    """Small figures side by side, whose captions name them."""

    figures: Sequence[Figure]


@dataclass(frozen=True)
class Opening:
    """What a page or a section begins with: text, and beside it, where there is room, the figure that shows it."""

    text: Sequence[Block]
    figure: Figure


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away behind a summary."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True)
class Code:
    """Lines in a font of fixed width."""

    text: str


@dataclass(frozen=True)
class Definitions:
    """Terms and their values."""

    items: dict[str, str]


Block: TypeAlias = Heading | Text | Bullets | Table | Figure | Gallery | Opening | Details | Code | Definitions


def folded(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks, of which those with a title show it alone."""
    return [replace(of, folded=True) if isinstance(of, Heading | Table | Figure) and of.title else of for of in blocks]


def figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    """Yield all figures of a page, in its order."""
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Gallery):
            yield from block.figures
        elif isinstance(block, Opening):
            yield from figures(block.text)
            yield block.figure
        elif isinstance(block, Heading | Details):
            yield from figures(block.blocks)
