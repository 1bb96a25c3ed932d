"""The report as a reader sees it: in a browser, on a screen, a phone and paper."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import ENDING, ENDLESS, SCHEMES, SOUND, compose_config
from runs_to_compare import write_task_run

from poslab.commands.compare import run_comparison
from poslab.config.scripts import CompareConfig
from poslab.runs.error_examples import WrongAnswer
from poslab.training.train import train

pytestmark = pytest.mark.browser

DESKTOP, PHONE, PAPER = 1280, 390, 680  # pixels; A4 within its margins
POSES = [ENDLESS, ENDING, next(name for name in SOUND if name not in (ENDLESS, ENDING))]
PAGES = ("report", "crowded", "tasks")  # the fixtures
# The widest that anything in the page reaches, apart from what scrolls in a box of its own.
OVERFLOW = "document.documentElement.scrollWidth"
CUT_OFF = "[...document.querySelectorAll('.table')].filter(box => box.scrollWidth > box.clientWidth).length"


PANELS = "[...document.querySelectorAll('figure svg')]"
UNFOLD = "document.querySelectorAll('details.section').forEach(section => section.open = true)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three schemes of every kind, two seeds each."""
    root = tmp_path_factory.mktemp("report")
    for pos in POSES:
        for seed in (1, 2):
            settings = (f"pos={pos}", f"seed={seed}", f"run_dir={root}/runs/{pos}-{seed}", "data.vocabulary=observed")
            train(compose_config("experiment=smoke", "trainer=cpu", "threads=1", *settings))
    return run_comparison(CompareConfig([str(root / "runs")]), "python scripts/compare.py runs=runs") / "report.html"


@pytest.fixture(scope="module")
def crowded(report: Path) -> Path:
    """Long names, folders left out, and notes."""
    runs = report.parents[1]
    crowd = runs.parent / "crowd"
    shutil.copytree(runs, crowd, ignore=shutil.ignore_patterns("report", "checkpoints"))
    for number in range(8):
        long = "a_very_long_setting_of_a_scheme=" + "0123456789" * 4 + str(number)
        copied = crowd / f"{ENDLESS}-{number}-{'folder' * 20}"
        shutil.copytree(runs / f"{ENDLESS}-1", copied, ignore=shutil.ignore_patterns("check*"))
        summary = copied / "summary.json"
        content = json.loads(summary.read_text())
        summary.write_text(json.dumps(content | {"pos_settings": content["pos_settings"] | {"a_setting": long}}))
    (crowd / ("empty" * 40)).mkdir()
    return run_comparison(CompareConfig([str(crowd)]), "python scripts/compare.py runs=runs") / "report.html"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven tasks and twelve schemes, whose answers are too long for a page."""
    runs = tmp_path_factory.mktemp("tasks")
    symbols = [f"s{number}" for number in range(90)]
    wrong = WrongAnswer(0, symbols, list(range(90)), symbols, [*symbols[:20], *["s0"] * 70])
    for data in ("addition", "back", "copy", "counter", "majority", "recall", "sort"):
        for number, pos in enumerate(SCHEMES[:12]):
            exact = {10: 1.0, 20: number / 12, 30: 0.1}
            write_task_run(runs, pos, 1, exact, 250 if number else None, data, answers={20: [wrong], 30: [wrong]})
    return run_comparison(CompareConfig([str(runs)]), "python scripts/compare.py runs=runs") / "report.html"


def test_every_figure_renders_and_nothing_is_fetched(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report, DESKTOP)
    page.evaluate(UNFOLD)
    assert [text for text in page.heard if not text.startswith("data:")] == [report.as_uri()]
    panels = page.evaluate(f"{PANELS}.map(svg => [svg.ariaLabel, svg.getBBox().width, svg.clientWidth])")
    assert len(panels) > len(page.query_selector_all("figure")) > 5
    for name, drawn, shown in panels:
        assert drawn > 0, name
        assert shown > 140, name


def test_the_answer_and_its_picture_stand_on_the_first_screen(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report, DESKTOP)
    answer, picture = page.query_selector(".headline"), page.query_selector("figure svg")
    for element in (answer, picture):
        box = element.bounding_box()
        assert box["y"] + box["height"] < 800
    assert picture.bounding_box()["x"] > answer.bounding_box()["x"] + 400  # beside it
    assert page.query_selector("table").is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_downwards_only(name: str, visit: Callable[..., Any], request: pytest.FixtureRequest) -> None:
    page = visit(request.getfixturevalue(name), PHONE)
    page.evaluate(UNFOLD)
    assert page.evaluate(OVERFLOW) <= PHONE
    # No figure is cut off, and its text can be read.
    for box in page.query_selector_all("figure svg, .table"):
        assert box.bounding_box()["width"] <= PHONE
    sizes = page.evaluate(
        "[...document.querySelectorAll('figure svg text')].map(text => parseFloat(getComputedStyle(text).fontSize)"
        " * text.ownerSVGElement.clientWidth / text.ownerSVGElement.viewBox.baseVal.width)"
    )
    assert min(sizes) > 8  # pixels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_and_tables_can_be_read_on_any_screen(tasks: Path, visit: Callable[..., Any], scheme: str) -> None:
    page = visit(tasks, DESKTOP)
    page.emulate_media(color_scheme=scheme)
    page.evaluate(UNFOLD)
    contrast = """element => {
        const light = colour => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map(n => (n / 255) ** 2.2);
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const style = getComputedStyle(element);
        const text = light(element.tagName === "text" ? style.fill : style.color);
        const page = light(getComputedStyle(document.body).backgroundColor);
        return (Math.max(text, page) + .05) / (Math.min(text, page) + .05);
    }"""
    for selector in ("figure svg text", "figcaption", "td:not([style])", "th", ".headline, .answer li"):
        for element in page.query_selector_all(selector)[:40]:
            assert element.evaluate(contrast) > 3, (selector, element.inner_text())


@pytest.mark.parametrize(
    ("name", "width", "medium"),
    [*((name, DESKTOP, "screen") for name in ("report", "tasks")), *((name, PAPER, "print") for name in PAGES)],
)
def test_no_column_is_cut_off(
    name: str, width: int, medium: str, visit: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    page = visit(request.getfixturevalue(name), width, medium)
    if medium == "screen":  # because paper has them open
        page.evaluate(UNFOLD)
    assert page.evaluate(OVERFLOW) <= width
    assert page.evaluate(CUT_OFF) == 0
    assert name != "crowded" or "emptyempty" in page.inner_text("body")
    assert name != "tasks" or page.locator(".symbols").first.is_visible()


def test_configuration_folds_out(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report, DESKTOP)
    page.click("summary >> text=To repeat it")
    assert "context_length: 32" not in page.inner_text("body")
    assert len(page.query_selector_all("summary >> text=others")) == 1  # the same for all schemes
    page.click("summary >> text=all others")
    assert "context_length: 32" in page.inner_text("body")
