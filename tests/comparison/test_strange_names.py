"""Pages about strangers' runs and tables: whatever a file calls things stands there as text, nothing of it runs."""

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from runs_to_compare import (
    ANSWER,
    MEASURES,
    change_config,
    change_summary,
    report_of,
    write_evaluation,
    write_run,
    write_task_run,
    wrong_answer,
)
from runs_to_resume import TINY
from tables import SHARE, losses, reference, rows

from poslab.commands.explain import run_explanation
from poslab.config.scripts import ExplainConfig
from poslab.runs.checkpoint_files import read_checkpoint, save_weights
from poslab.runs.evaluation import LengthLoss
from seedstats import compare, read_table, report

NAME = (
    "_\"><script>alert(1)</script><img src=x onerror=alert(1)>' onload='alert(1)' $x^$ {{7*7}} ${title} --> ]]>"
    "</title></style></pre><svg/onload=alert(1)>&lt;b&gt; ](javascript:alert(1)) `|`"
)
FOLDER = NAME.replace("/", "|")[:150]
# What pages are made of; an element of another name is one that a file has brought.
ELEMENTS = {
    "html", "head", "meta", "title", "link", "style", "script", "body", "header", "section", "div", "span", "p", "a",
    "b", "i", "mark", "code", "pre", "h1", "h2", "h3", "h4", "h5", "ul", "ol", "li", "dl", "dt", "dd", "details",
    "summary", "table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td", "form", "input",
    "output", "label", "figure", "figcaption", "img", "svg", "defs", "clippath", "g", "path", "rect", "use", "text",
    "tspan",
}  # fmt: skip


class Elements(HTMLParser):
    """Elements of a page with their attributes, as a browser reads them, and all text outside scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._within = tag
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts.append(data)
        else:
            self.text += data


def assert_harmless(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    elements = Elements(text)
    assert elements.tags <= ELEMENTS
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name in ("srcdoc", "formaction")]
    addresses = [value for name, value in elements.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(address.startswith(("#", "data:image/svg+xml;base64,", "data:,")) for address in addresses)
    assert not any("<script>alert" in script for script in elements.scripts)
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>" in elements.text  # as text
    for file in page.parent.glob("figures/*.svg"):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
        assert not tags & {"script", "img", "foreignObject", "a"}, file


def assert_harmless_markdown(page: Path) -> None:
    """In code, indented by four, all marks are text."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("    ")]
    tags = {tag for line in lines for tag in re.findall(r"(?<!\\)</?([a-zA-Z]+)", line)}
    assert tags <= {"details", "summary"}
    assert all(target.startswith("figures/") for line in lines for target in re.findall(r"(?<!\\)\]\(([^)]*)", line))


def test_a_report_of_runs_on_texts(tmp_path: Path) -> None:
    names = dict.fromkeys(["device", "data", "precision", "attention_backend", "vocabulary"], NAME)
    for pos, loss in (("absolute", 4.0), ("t5", 3.7)):
        for seed in range(1, 4):
            run = write_run(tmp_path / FOLDER, pos, seed, loss + 0.01 * seed, untrained_losses={NAME: 7.0}, **names)
            change_summary(run, pos=f"{pos}{NAME}", versions={NAME: NAME}, git_commit=NAME, code_fingerprint=NAME)
            change_config(run, "data.path", NAME)
            write_evaluation(run, [LengthLoss(16, 8, 4.5, 4.25, [4.0] * 16, 3), LengthLoss(64, 32, note=NAME)])
            run.rename(run.with_name(f"{run.name} {FOLDER}"))
    shutil.copytree(run.parent, run.parent / "unfinished")
    for left in (run.parent / "unfinished").rglob("summary.json"):
        left.write_text(NAME)
    folder = report_of(tmp_path / FOLDER)
    assert_harmless(folder / "report.html")
    assert_harmless_markdown(folder / "report.md")


def test_a_report_of_runs_on_tasks(tmp_path: Path) -> None:
    measures = [{**measure, "unit": NAME} for measure in MEASURES]
    measures.append({"name": f"../../{NAME}", "unit": NAME, "higher_is_better": True, "chance": None})
    answers = {20: [wrong_answer(1, *ANSWER[:2], NAME)]}
    for pos in ("absolute", "t5"):
        for seed in range(1, 4):
            run = write_task_run(tmp_path, pos, seed, {10: 0.9, 20: 0.5 + 0.01 * seed}, answers=answers)
            change_summary(run, pos=f"{pos}{NAME}", measures=measures, **{f"../../{NAME}": {"20": 0.5}})
    before = {*tmp_path.parent.rglob("*")}
    folder = report_of(tmp_path)
    assert_harmless(folder / "report.html")
    assert_harmless_markdown(folder / "report.md")
    written = {*tmp_path.parent.rglob("*")} - before
    assert all(path.is_relative_to(folder) for path in written)


def test_a_report_of_a_table(tmp_path: Path) -> None:
    values = {f"{name}{NAME}": of_name for name, of_name in losses(absolute=0.0, shaw=-0.1).items()}
    of_text = rows(values, {"metric": NAME, "unit": NAME, "better": "lower"}, data=NAME, **{NAME: NAME})
    grid = [
        rows({name: list(of.values()) for name, of in values.items()}, SHARE | {"metric": f"{NAME}_{part}"},
             data="others", length=length).assign(value="0.5")
        for part in (1, 2, 3) for length in (10, 20)
    ]  # fmt: skip
    for number, parts in enumerate(([of_text, reference(NAME, 4.2, {"metric": NAME, "unit": NAME, "better": "lower"},
                                                        data=NAME)], grid)):  # fmt: skip
        files = []
        for place, part in enumerate(parts):
            part.to_csv(file := tmp_path / f"{number}-{place} {FOLDER}.csv", index=False)
            files.append(file)
        table = read_table(*files)
        page = report(compare(table), tmp_path / str(number), table)
        assert_harmless(page)
        assert_harmless_markdown(page.with_name("report.md"))


def test_an_explanation(tmp_path: Path, trained: Callable[..., Path]) -> None:
    (text := tmp_path / "text.txt").write_text(f"{NAME} and then " * 200)
    runs = []
    for pos in ("t5", "alibi"):
        shutil.copytree(trained(*TINY, f"pos={pos}", f"data.path={text}"), run := tmp_path / f"{pos} {FOLDER}")
        weights = run / "checkpoints" / "best.safetensors"
        content = read_checkpoint(weights)
        about = json.loads(json.dumps(content["poslab"] | {"observed": None}))
        save_weights(
            weights, content["state_dict"], about | {"observed": content["poslab"]["observed"], "pos": pos + NAME}
        )
        runs.append(str(run))
    (tmp_path / "page").mkdir()
    page = run_explanation(ExplainConfig(runs, out=str(tmp_path / "page" / "page.html"), sentence=NAME), NAME)
    assert_harmless(page)
