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
    assert all(130 < figure.bounding_box()["width"] <= width for figure in figures)
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest > 8


def test_a_token_shows_where_it_looks(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, PHONE)
    attention = page.query_selector(".map")
    words = attention.query_selector_all("button")
    words[5].click()
    assert [word.inner_text() for word in attention.query_selector_all("[aria-pressed=true]")] == [
        words[5].inner_text()
    ]
    read = attention.query_selector(".read")
    assert read.inner_text().startswith(f"“{words[5].inner_text()}” looks at")
    assert len(attention.query_selector_all(".cell.here")) == 6  # it and those before
    # Shades are roots of weights, which sum to 1.
    shade = "cells => cells.map(cell => Number(cell.style.getPropertyValue('--v')))"
    shades = page.eval_on_selector_all(".map[data-map='0'] .cell.here", shade)
    assert sum(shade**2 for shade in shades) == pytest.approx(1, abs=0.05)
    before = read.inner_text()
    attention.query_selector("select").select_option("1 1")
    assert read.inner_text() != before


def test_a_word_shows_what_it_retrieves(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, PHONE)
    (lookup,) = page.query_selector_all(".lookup")
    words, first = lookup.query_selector_all("button"), lookup.inner_text()
    words[5].click()
    assert lookup.query_selector_all("[aria-pressed=true]")[0].inner_text() == words[5].inner_text()
    memories = lookup.query_selector_all("li")
    assert len(memories) == 32
    assert all("back: …" in memory.inner_text() and memory.query_selector("mark") for memory in memories)
    shares = [float(memory.inner_text().split("%")[0]) for memory in memories]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=2)
    second = lookup.inner_text()
    assert second != first
    lookup.query_selector("select").select_option("1")
    assert lookup.inner_text() != second


def test_a_slider_points_at_a_distance_in_all_figures(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, DESKTOP)
    sliders = page.query_selector_all(".pointer input")
    assert len(sliders) > 1
    start = page.get_attribute("body", "data-distance")
    outputs = page.query_selector_all(".pointer output")
    assert {output.inner_text().split()[0].rstrip(":") for output in outputs} == {start}
    places = []
    for value in (0, 7):
        sliders[0].evaluate(f"slider => {{ slider.value = {value}; slider.dispatchEvent(new Event('input')) }}")
        places.append(page.eval_on_selector_all(".marker", "lines => lines.map(line => line.getAttribute('x1'))"))
        assert {slider.input_value() for slider in sliders} == {str(value)}
    assert {output.inner_text() for output in page.query_selector_all(".pointer output")} == {"7 back"}
    assert all(float(after) > float(before) for before, after in zip(*places, strict=True))
    said = [read.inner_text() for read in page.query_selector_all(".panel .read")]
    assert len(said) > 4
    assert all("at distance 7:" in text for text in said)


def test_pointing_at_a_figure_chooses_the_distance(explanation: Path, visit: Callable[..., Any]) -> None:
    page = visit(explanation, DESKTOP)
    svg = page.query_selector(".panel[data-chart] svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + 0.5 * box["height"])
    (chosen,) = {read.inner_text().partition(":")[0] for read in page.query_selector_all(".panel .read")}
    assert int(chosen.removeprefix("at distance ")) > 16  # of 32, on an axis that gives near ones room


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_page(explanation: Path, visit: Callable[..., Any], scheme: str) -> None:
    """That of figures, too, whose colours are set in the SVG."""
    page = visit(explanation, DESKTOP)
    page.emulate_media(color_scheme=scheme)
    contrast = """([text, page]) => {
        const light = colour => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map(n => (n / 255) ** 2.2);
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const [a, b] = [light(text), light(page)];
        return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    }"""
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    texts = {"p": "color", ".note": "color", "figure svg text": "fill", ".headline": "color"}
    for selector, name in texts.items():
        colour = page.eval_on_selector(selector, f"part => getComputedStyle(part).{name}")
        assert page.evaluate(contrast, [colour, background]) > 4.5, selector


def test_it_can_be_read_without_scripts(explanation: Path, browser: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(explanation.as_uri())
    text = page.inner_text("body")
    assert len(page.query_selector_all(".map .cell")) > 100
    assert "Tap a word" not in text
    assert "The strongest memory of the sample's last token" in text
    assert not any(pointer.is_visible() for pointer in page.query_selector_all(".pointer"))
    assert page.query_selector_all("button") == []
    page.close()
