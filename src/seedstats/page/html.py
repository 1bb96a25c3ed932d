"""Blocks as an HTML page that needs no other file.

`_element` is the one place where text is escaped: what is no Markup yet.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from string import Template

from markupsafe import Markup, escape

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
from seedstats.page.style import style
from seedstats.page.svg import inline

_PAGE = Path(__file__).with_name("page.html")  # and its script
_STRONG = 7  # shade, from which on a cell's text is light
_LEGIBLE = 72  # pixels of an inch, from which on text can be read


def page(title: str, blocks: Sequence[Block]) -> str:
    """Return the page, with its style and pictures, so that nothing is fetched."""
    content = {"title": escape(title), "style": style(), "body": _element("h1", title) + _all(blocks, 2)}
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(content)


def _all(blocks: Iterable[Block], level: int) -> Markup:
    """Render blocks whose titles are headings of that level."""
    return Markup("\n").join(["", *(_block(block, level) for block in blocks)])


def _block(block: Block, level: int) -> Markup:
    match block:
        case Heading(title, blocks, anchor, folded):
            return _titled(_element(f"h{level}", title, id=anchor), _all(blocks, level + 1), folded)
        case Text(text, large, caveat):
            return _element("p", text, class_=f"{'headline' * large} {'caveat' * caveat}".strip())
        case Bullets(items, kind, links):
            lines = map(_linked, items, links) if links else items
            return _element("ul", *(_element("li", line) for line in lines), class_=kind)
        case Table():
            return _table(block, level)
        case Figure():
            return _figure(block, level)
        case Gallery(figures):
            return _element("div", _all(figures, level), class_="cards")
        case Opening(text, figure):
            drawn = _element("figure", _panels(figure), _caption(figure), id=figure.name)
            return _element("div", _element("div", _all(text, level)), drawn, class_="row first")
        case Details(summary, blocks, is_open):
            content = _element("summary", summary), _all(blocks, level + 1)
            return _element("details", *content, open=is_open and "open", class_="aside" if level == 2 else "")
        case Code(text):
            return _element("pre", text)
        case Definitions(items):
            return _element("dl", *(_element("dt", term) + _element("dd", text) for term, text in items.items()))


def _element(tag: str, *content: str, **attributes: object) -> Markup:
    """Return an element with its content; attributes that are empty are left out, and one is named `class_`."""
    written = [
        (name.rstrip("_").replace("_", "-"), value)
        for name, value in attributes.items()
        if value not in ("", None, False)
    ]
    opening = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in written)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, opening, Markup("").join(content))


def _titled(title: Markup, content: Markup, folded: bool) -> Markup:
    return _element("details", _element("summary", title), content, class_="section") if folded else title + content


def _linked(text: str, anchor: str) -> Markup:
    name, colon, rest = text.partition(": ")
    return _element("a", name, href=f"#{anchor}") + colon + rest


def _table(table: Table, level: int) -> Markup:
    title = _element(f"h{level}", table.title) if table.title else Markup("")
    heads, spans = [], list[Markup]()
    if table.headings:
        above = [_element("th", name, scope="colgroup", colspan=count) for name, count in table.headings]
        heads.append(_element("tr", _element("th"), *above))
        spans = [_element("colgroup", span=count) for count in (1, *(count for _, count in table.headings))]
    column, order = table.sorted_by or (None, "")
    columns = (
        _cell(cell, "th", n in table.words, scope="col", aria_sort=order if n == column else "")
        for n, cell in enumerate(table.columns)
    )
    rows = [*spans, _element("thead", *heads, _element("tr", *columns)), _element("tbody", *_rows(table, table.rows))]
    rows += [_element("tfoot", *_rows(table, table.foot))] if table.foot else []
    kind = f"{table.kind} sortable".strip() if table.sortable else table.kind
    content = Markup("\n") + _element("div", _element("table", *rows, id=table.anchor, class_=kind), class_="table")
    if table.note:
        content += Markup("\n") + _element("p", table.note, f" {table.hint}" if table.hint else "")
    return _titled(title, content, table.folded)


def _rows(table: Table, rows: Iterable[Sequence[str | Cell]]) -> Iterable[Markup]:
    for row in rows:
        kind = "highlight" if row[0] == table.highlight else ""
        cells = (_cell(cell, "td", n in table.words) for n, cell in enumerate(row))
        yield Markup("\n") + _element("tr", *cells, class_=kind)


def _cell(content: str | Cell, tag: str, words: bool, **attributes: str) -> Markup:
    cell = Cell(content) if isinstance(content, str) else content
    kinds = {"words": words, "marked": cell.marked, "strong": (cell.shade or 0) >= _STRONG}
    kind = " ".join(name for name, has in kinds.items() if has)
    style = "" if cell.shade is None else f"--shade: {cell.shade}"
    return _element(tag, cell.text, title=cell.tooltip, class_=kind, style=style, **attributes)


def _figure(figure: Figure, level: int) -> Markup:
    """Render a figure beside its title and caption; one of a gallery above its caption, which names it."""
    if figure.small:
        return _element("figure", _panels(figure), _caption(figure), id=figure.name)
    title = _element(f"h{level}", figure.title)
    text = _caption(figure) if figure.folded else title + _caption(figure)
    content = _element("figure", _element("div", text), _panels(figure), id=figure.name, class_="row")
    return _titled(title, content, folded=True) if figure.folded else content


def _caption(figure: Figure) -> Markup:
    return _element("figcaption", figure.caption)


def _panels(figure: Figure) -> Markup:
    """Render the panels side by side, those of one width together: as many as have room at a size at which their text
    can be read."""
    drawn = zip(figure.panels, figure.svgs, strict=True)
    rows = []
    for width, same_width in groupby(drawn, key=lambda panel: panel[0].get_figwidth()):
        elements = [inline(text, figure.title) for _, text in same_width]
        rows.append(_element("div", *elements, class_="panels", style=f"--least: {_LEGIBLE * width:.0f}px"))
    return _element("div", *rows)
