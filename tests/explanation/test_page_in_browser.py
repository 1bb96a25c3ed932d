"""The page of scripts/explain.py as a reader sees it: on a screen, on a phone, and without its scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import ENDING, ENDLESS
from runs_to_evaluate import make_run

from poslab.commands.explain import run_explanation
from poslab.config.scripts import ExplainConfig

pytestmark = pytest.mark.browser

DESKTOP, PHONE = 1280, 390  # pixels
OVERFLOW = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def explanation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("explanation")
    retrieval = ("data.order=stream", "data.stride=null", "model.retrieval.layer=1", "model.retrieval.size=64")
    runs = [str(make_run(root / ENDLESS, f"pos={ENDLESS}", *retrieval)), str(make_run(root / ENDING, f"pos={ENDING}"))]
    return run_explanation(ExplainConfig(runs, out=str(root / "page.html")), "")


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_nothing_is_fetched_cut_off_or_complained_of(explanation: Path, visit: Callable[..., Any], width: int) -> None:
    page = visit(explanation, width)
    assert [text for text in page.heard if not text.startswith("data:")] == [explanation.as_uri()]
    assert page.evaluate(OVERFLOW) <= width
    figures = page.query_selector_all("figure svg")
    assert len(figures) > 8
    assert all(300 < figure.bounding_box()["width"] <= width for figure in figures)
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest > 8


def test_a_word_shows_where_it_looks(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, PHONE)
    explorer = page.query_selector(".explorer")
    words = explorer.query_selector_all("button")
    words[5].click()
    assert explorer.query_selector_all("[aria-pressed=true]")[0].inner_text() == words[5].inner_text()
    assert f"“{words[5].inner_text()}” looks at" in explorer.inner_text()
    shares = [float(word.get_attribute("title").split()[0]) for word in words[:6]]
    assert sum(shares) == pytest.approx(100, abs=5)  # in steps of a 255th
    assert words[6].get_attribute("title") == "not seen yet"
    before = explorer.inner_text()
    explorer.query_selector("select").select_option("1 1")
    assert explorer.inner_text() != before


def test_a_word_shows_what_it_retrieves(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, PHONE)
    (lookup,) = page.query_selector_all(".lookup")
    words, first = lookup.query_selector_all("button"), lookup.inner_text()
    words[5].click()
    assert lookup.query_selector_all("[aria-pressed=true]")[0].inner_text() == words[5].inner_text()
    memories = lookup.query_selector_all("li")
    assert len(memories) == 32
    assert all("back: …" in memory.inner_text() and memory.query_selector("mark") for memory in memories)
    shares = [float(memory.inner_text().split()[0]) for memory in memories]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=2)
    second = lookup.inner_text()
    assert second != first
    lookup.query_selector("select").select_option("1")
    assert lookup.inner_text() != second


def test_the_slider_points_at_a_distance(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, DESKTOP)
    places = []
    for value in (0, 7):
        page.evaluate(f"slider.value = {value}; slider.dispatchEvent(new Event('input'))")
        places.append(page.eval_on_selector_all(".marker", "lines => lines.map(line => line.getAttribute('x1'))"))
    assert page.inner_text("#distance output") == "7 tokens back"
    assert all(float(after) > float(before) for before, after in zip(*places, strict=True))
    assert len(page.query_selector_all(".read span")) > 4


def test_it_can_be_read_without_scripts(explanation: Path, browser: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(explanation.as_uri())
    text = page.inner_text("body")
    assert "Where the last token looks" in text
    assert "Tap a word" not in text
    assert "The strongest memory of the sample's last token" in text
    assert not page.is_visible("#distance")
    assert page.query_selector_all("button") == []
    page.close()
