"""Style and script of page.html, in a browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedstats.page.blocks import Cell, Details, Heading, Table, Text
from seedstats.page.files import write_report

pytestmark = pytest.mark.browser

DESKTOP, PAPER = 1280, 680  # pixels; A4 within its margins
FIRST = "rows => rows.map(row => row.cells[0].innerText)"
LOSSES = ["1.50", "2.50", "10.00", "n/a"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of tables that sort, and of what is folded away."""
    folder = tmp_path_factory.mktemp("page")
    rows = [[name, loss] for name, loss in zip(["t5", "rope", "nope", "fire"], LOSSES, strict=True)]
    rows[1][1] = "baseline"
    settings = {"anchor": "losses", "highlight": "nope", "sortable": True, "sorted_by": (1, "ascending")}
    losses = Table("Schemes", ["scheme", "loss"], rows, "Losses.", foot=[["(bigram)", "0.1"]], **settings)
    groups = [(f"task {n}", 3) for n in range(6)]
    shades = [[name, *(Cell(f"{n / 18:.2f}", name, shade=n % 11) for n in range(18))] for name in ("fire", "alibi")]
    heads = [f"{n}× ({n}0)" for _ in groups for n in (1, 2, 3)]
    matrix = Table("Tasks", ["scheme", *heads], shades, "Means.", anchor="matrix", sortable=True, headings=groups)
    section = Heading("Part", [Text("Of a section.")], folded=True)
    write_report(folder, "Page", [losses, matrix, section, Details("folded", [Text("Hidden.")])])
    return folder / "report.html"


def test_heads_sort_a_table_but_its_foot(page: Path, visit: Callable[..., Any]) -> None:
    """What is no number comes last, and a baseline's difference is 0."""
    seen = visit(page, DESKTOP)
    rows = "#losses tbody tr"
    assert seen.eval_on_selector_all(rows, FIRST) == ["t5", "rope", "nope", "fire"]
    seen.click("#losses th >> text=loss")  # was ascending
    assert seen.eval_on_selector_all(rows, FIRST) == ["nope", "t5", "rope", "fire"]
    seen.focus("#losses th button >> text=scheme")
    seen.keyboard.press("Enter")
    assert seen.eval_on_selector_all(rows, FIRST) == ["fire", "nope", "rope", "t5"]
    assert seen.eval_on_selector_all("th[aria-sort]", "heads => heads.map(head => head.ariaSort)") == ["ascending"]
    assert seen.eval_on_selector_all("#losses tfoot tr", FIRST) == ["(bigram)"]
    # Heads below groups sort a matrix.
    assert seen.eval_on_selector_all("#matrix tbody tr", FIRST) == ["fire", "alibi"]
    seen.locator("#matrix th >> text=scheme").click()
    assert seen.eval_on_selector_all("#matrix tbody tr", FIRST) == ["alibi", "fire"]


def test_without_scripts(page: Path, browser: Any) -> None:
    seen = browser.new_page(java_script_enabled=False)
    seen.goto(page.as_uri())
    assert "sorts the table" not in seen.inner_text("body")
    assert seen.query_selector_all("button") == []
    seen.close()


def test_what_is_folded_away_is_not_printed(page: Path, visit: Callable[..., Any]) -> None:
    seen = visit(page, PAPER, "print")
    assert "Hidden" not in seen.inner_text("body")
    assert not seen.locator("summary >> text=folded").is_visible()


def test_sections_that_are_folded_on_the_screen_are_printed(page: Path, visit: Callable[..., Any]) -> None:
    seen = visit(page, DESKTOP)
    assert "Of a section." not in seen.inner_text("body")
    seen.click("summary >> text=Part")
    assert "Of a section." in seen.inner_text("body")
    assert "Of a section." in visit(page, PAPER, "print").inner_text("body")
