"""Blocks as html, markdown and on the terminal."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from seedstats.page import html, markdown, terminal
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
    Table,
    Text,
    figures,
)
from seedstats.page.files import write_report

EVERY = [
    Bullets(["first answer", "second answer"], "answer"),
    Text("These are weakened:"),
    Bullets(["a caveat"], "caveat"),
    Table("Rows", ["scheme", "loss", "notes"], [["t5", "1.5", "none"], ["nope", "2.5", ""]], "How to read it."),
    Heading("Part", [Text("A paragraph."), Heading("Below", [Code("a: 1\n  b: 2")])], anchor="part"),
    Details("folded", [Text("Inside."), Table("Inner", ["a"], [["cell"]])]),
    Definitions({"vocabulary": "full"}),
    Figure("loss", "Loss", "Of each run.", [Drawing()]),
    Gallery([Figure("bias_t5", "Bias of t5", "Of t5.", [Drawing()], small=True)]),
]
TEXTS = [
    *("first answer", "second answer", "These are weakened:", "a caveat", "Rows", "scheme", "1.5", "How to read it."),
    *("Part", "A paragraph.", "Below", "b: 2", "folded", "Inside.", "Inner", "cell", "vocabulary", "full", "Loss"),
    *("Of each run.", "Of t5."),
]


class Tags(HTMLParser):
    """Text of a page without its script and style, and its (tag, attributes)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", list[tuple[str, dict[str, str | None]]]()
        self.feed(re.sub(r"<(style|script|title)>.*?</\1>", "", page, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def tags_of(*blocks: Block) -> Tags:
    return Tags(html.page("Page", blocks))


def one_table(**settings: object) -> Table:
    table = {"title": "", "columns": ["scheme", "loss"], "rows": [["t5", "1.5"], ["nope", "2.5"]]}
    return Table(**table | settings)  # type: ignore[arg-type]


def test_both_pages_say_every_block_in_the_order_given() -> None:
    for text in (tags_of(*EVERY).text, markdown.page("Page", EVERY)):
        places = [text.index("Page"), *map(text.index, TEXTS)]
        assert places == sorted(places)


def test_levels_of_headings_are_their_depth() -> None:
    heads = [tag for tag, _ in tags_of(*EVERY).tags if re.fullmatch(r"h\d", tag)]
    of_markdown = re.findall(r"^(#+) (.*)", markdown.page("Page", EVERY), re.MULTILINE)
    assert [len(marks) for marks, _ in of_markdown] == [int(head[1:]) for head in heads] == [1, 2, 2, 3, 3, 2]


def test_names_are_text_not_markup() -> None:
    name = "<img src=x>|<b>&amp; $x^{$ \" '"
    table = one_table(title=name, columns=["", Cell(name, name)], rows=[[name, Cell(name, name)]], note=name, hint=name)
    rest = [Text(name), Bullets([name]), Code(name), Definitions({name: name}), Bullets([f"{name}: x"], links=[name])]
    page = html.page(name, [Heading(name, rest, name), table, Details(name, [Figure(name, name, name, [Drawing()])])])
    parsed = Tags(page)
    assert {tag for tag, _ in parsed.tags} & {"b"} == set()
    assert [attributes["aria-label"] for tag, attributes in parsed.tags if tag == "svg"] == [name]
    assert not [tag for tag, attributes in parsed.tags if tag == "img"]
    assert parsed.text.count(name) == 17
    assert f"<title>{html.escape(name)}</title>" in page
    in_markdown = markdown.page("", [Text(name), table])
    assert not re.search(r"(?<!\\)<", in_markdown)
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in in_markdown.splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [2, 2, 2]


def test_links_lead_to_anchors() -> None:
    page = tags_of(Bullets(["copy 2: t5 is best: by far"], links=["copy_2"]), Heading("copy 2", [], "copy_2"))
    assert ("a", {"href": "#copy_2"}) in page.tags
    assert ("h2", {"id": "copy_2"}) in page.tags
    assert "copy 2: t5 is best: by far" in page.text


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("![x](http://evil/p.png)", "![x]\\(http://evil/p.png)"),
        ("[c](javascript:alert(1))", "[c]\\(javascript:alert(1))"),
        ("[a][b]", "[a]\\[b]"),
        ("[a]: http://evil", "[a]\\: http://evil"),
        ("**bold** and `code`", "\\*\\*bold\\*\\* and \\`code\\`"),
        ("__init__ of transformer_xl", "\\_\\_init\\_\\_ of transformer_xl"),
        ("$x$ ~~gone~~ &amp; R&D", "\\$x\\$ \\~\\~gone\\~\\~ \\&amp; R&D"),
        ("\\[a](b)", "\\\\[a]\\(b)"),
        ("# heading", "\\# heading"),
        ("1. item", "1\\. item"),
        ("- item", "\\- item"),
        ("> quotation", "\\> quotation"),
        ("two\n# lines", "two # lines"),
        ("\x1b]0;title\x07\u202eright to left", "·]0;title··right to left"),
        ("1.5 [0.1, 0.2] -3 #5", "1.5 [0.1, 0.2] -3 #5"),
    ],
)
def test_names_with_marks_of_markdown_stand_there_as_they_are(name: str, escaped: str) -> None:
    table = Table("", ["name"], [[name]])
    assert markdown.page("", [Text(name), table]).splitlines() == [
        "# ", "", escaped, "", "| name |", "| --- |", f"| {escaped} |",
    ]  # fmt: skip


def test_a_table_marks_its_cells_rows_and_columns() -> None:
    rows = [["t5", Cell("1.5", "of t5", marked=True)], ["nope", Cell("2.5", shade=3)]]
    order = (1, "ascending")
    table = one_table(
        rows=rows,
        anchor="losses",
        highlight="nope",
        foot=[["(bigram)", "3"]],
        sortable=True,
        sorted_by=order,
        note="N.",
    )
    page = tags_of(table)
    assert ("table", {"id": "losses", "class": "sortable"}) in page.tags
    assert [attributes for tag, attributes in page.tags if tag == "th"] == [
        {"scope": "col"},
        {"scope": "col", "aria-sort": "ascending"},
    ]
    assert [attributes for tag, attributes in page.tags if tag == "tr"] == [{}, {}, {"class": "highlight"}, {}]
    assert ("td", {"title": "of t5", "class": "marked"}) in page.tags
    assert ("td", {"style": "--shade: 3"}) in page.tags
    assert page.tags.index(("tfoot", {})) > page.tags.index(("tbody", {}))
    lines = ["| scheme | loss |", "| --- | --- |", "| t5 | **1.5** |", "| nope | 2.5 |", "| (bigram) | 3 |", "", "N."]
    assert markdown.page("", [table]).splitlines()[2:] == lines


def test_columns_in_groups() -> None:
    table = one_table(columns=["", "10", "20", "10"], rows=[["t5", "1", "2", "3"]], headings=[("copy", 2), ("sort", 1)])
    spans = [attributes.get("colspan") for tag, attributes in tags_of(table).tags if tag == "th"]
    assert spans == [None, "2", "1", None, None, None, None]
    assert "|  | copy 10 | copy 20 | sort 10 |" in markdown.page("", [table])


def test_hints_stand_in_html_only() -> None:
    table = one_table(note="Means.", hint="Dark is right.")
    assert "Means. Dark is right." in tags_of(table).text
    assert "Dark" not in markdown.page("", [table])


@pytest.mark.parametrize("is_open", [False, True])
def test_details(is_open: bool) -> None:
    details = Details("a < b", [Text("Inside.")], open=is_open)
    ((_, attributes),) = (of for of in tags_of(details).tags if of[0] == "details")
    assert ("open" in attributes) == is_open
    opening = "<details open>" if is_open else "<details>"
    expected = f"{opening}<summary>a &lt; b</summary>\n\nInside.\n\n</details>\n"
    assert markdown.page("", [details]).endswith(expected)


def test_the_terminal_has_sentences_and_narrow_tables() -> None:
    table = one_table(
        title="Schemes", columns=["scheme", "n", "loss"], rows=[["t5", "3", Cell("10.5")]], narrow=[0, 2], note="Note."
    )
    blocks = [table, Bullets(["t5 is best"], "answer"), Bullets([], "caveat"), Text("Text."), EVERY[-1]]
    lines = ["scheme  loss", "t5      10.5", "", "- t5 is best", "Text."]
    assert terminal.page(blocks).splitlines() == lines
    assert terminal.page([Bullets(["t5 is best"]), table]).splitlines() == ["- t5 is best", "", *lines[:2]]
    two = terminal.page([Heading("copy", blocks), Bullets(["one seed"], "caveat")]).splitlines()
    assert two == ["", "copy", "", *lines, "  caveat: one seed"]
    obeyed = terminal.page([Heading("\x1b[2J", [Text("\x1b]0;a\x07")]), one_table(rows=[["\x9b31m", "\u202eb", ""]])])
    assert "·[2J" in obeyed
    assert obeyed.replace("\n", "").isprintable()


def test_files_of_a_report(tmp_path: Path) -> None:
    """Over an earlier one; texts may be names of folders that are not UTF-8."""
    for _ in range(2):
        write_report(tmp_path / "report", "Page", [*EVERY, Text("a \udcff folder")])
    assert {file.name for file in (tmp_path / "report").rglob("*.*")} == {
        *("report.html", "report.md", "loss.svg", "bias_t5.svg")
    }
    assert [figure.name for figure in figures([Heading("", EVERY)])] == ["loss", "bias_t5"]
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert re.findall(r"\((figures/.*)\)", text) == ["figures/loss.svg", "figures/bias_t5.svg"]
    assert "a · folder" in text


def test_what_a_terminal_would_obey_is_a_dot() -> None:
    assert terminal.visible("a\x1b[2J\x07b\tc\nd é漢") == "a·[2J·b\tc\nd é漢"
