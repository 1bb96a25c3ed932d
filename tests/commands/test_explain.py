"""scripts/explain.py: the page it writes, what it says is missing, and what it refuses."""

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from common import ENDING, ENDLESS, RICHEST, RunScript, assert_refused
from corpora import VERDICT
from runs_to_evaluate import make_run

from poslab.config.files import CONFIGS

FOREIGN = '''"""Positions by hearsay."""
from dataclasses import dataclass
from poslab.positions import PositionScheme

@dataclass(frozen=True)
class Hearsay(PositionScheme):
    pass

@dataclass(frozen=True)
class Failing(PositionScheme):
    def explain(self, tables, shape, sample):
        raise ValueError("no colours left")
'''
TASK = (
    "data=recall", "data.max_length=16", "data.test_lengths=[16]", "data.validate_every=4",
    "trainer=cpu", "trainer.max_steps=4",
)  # fmt: skip


class Page(HTMLParser):
    """Content of a page, and what a browser would fetch."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text, self.tags, self.fetched = "", [], []
        self.html = file.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value for name, value in attributes if name in ("src", "href", "xlink:href") and value]

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def maps(self) -> list[dict[str, Any]]:
        (found,) = re.findall(r'<script type="application/json" id="maps">(.*?)</script>', self.html, re.DOTALL)
        return json.loads(found)


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, script: RunScript) -> RunScript:
    """scripts/explain.py with few questions; only one test has pictures drawn."""
    for least_or_most in ("LEAST", "MOST"):
        monkeypatch.setattr(f"poslab.explanation.probe_data.{least_or_most}", 8)
    if "pictures" not in request.keywords:
        monkeypatch.setattr("poslab.explanation.charts.svg", lambda figure: "<svg ></svg>")
    return script


@pytest.mark.parametrize("name", [ENDING, pytest.param(RICHEST, marks=pytest.mark.pictures)])
def test_a_run(name: str, script: RunScript, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", f"pos={name}")
    assert script("ckpt=run")[::2] == (0, "")
    file = run / "explanation.html"
    page = Page(file)
    assert f"How {name} knows position" in page.text
    probes = ("Heads that find copies", "Position in hidden states", "A linear probe ")
    for heading in ("What the scheme computes", "Cut to the last n tokens", "layer 1, head 0", "90% within", *probes):
        assert heading in page.text
    visible = page.text.partition("</style>")[0].partition("// Points at one distance")[0]
    assert "`" not in visible
    assert all(address.startswith(("#", "data:")) for address in page.fetched)
    assert page.tags.count("svg") >= 5
    assert "img" not in page.tags
    assert len(page.html) < 1_000_000
    (maps,) = page.maps
    assert maps["shape"] == [2, 2, 32, 32]
    assert len(maps["words"]) == 32
    assert ("a longer text can't be read in one piece" in page.text) == (name == ENDING)


def test_a_sentence_and_where_the_page_goes(script: RunScript, tmp_path: Path) -> None:
    """An earlier page is replaced, nothing else is, and the run is otherwise as it was."""
    run = make_run(tmp_path / "run", f"pos={ENDLESS}")
    for sentence in ("Jack Gisburn", "I had always thought"):
        assert script("ckpt=run", f"sentence={sentence}")[0] == 0
    assert Page(run / "explanation.html").maps[0]["words"][1:] == ["had", "always", "thought"]
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.yaml", "explanation.html"]
    (tmp_path / "mine.html").write_text("<html>mine</html>")
    assert_refused(script("ckpt=run", "out=mine.html"), "out=mine.html: is there already, and no page of this script")
    assert (tmp_path / "mine.html").read_text() == "<html>mine</html>"
    assert script("ckpt=run", "out=new/folder/page.html")[0] == 0
    assert (tmp_path / "new" / "folder" / "page.html").exists()


def test_a_run_that_retrieves(script: RunScript, tmp_path: Path) -> None:
    retrieval = ("data.order=stream", "data.stride=null", "model.retrieval.layer=1", "model.retrieval.k=4")
    make_run(tmp_path / "run", f"pos={ENDLESS}", *retrieval, "model.retrieval.size=70")
    assert script("ckpt=run")[::2] == (0, "")
    page = Page(tmp_path / "run" / "explanation.html")
    assert "Layer 1 retrieves: of its heads' output, 50% to 50% come from before the segment" in page.text
    (lookup,) = json.loads(page.html.split('id="lookups">')[1].split("</script>")[0])
    assert len(lookup["script"]["pieces"]) == 128  # as many segments of 32 as are needed for 70, and the last
    assert len(lookup["best"]) == 2
    found, queries = lookup["script"]["found"], lookup["script"]["queries"]
    assert {len(of_query) for of_head in found for of_query in of_head} == {4}
    assert all(26 <= place < 96 for of_head in found for of_query in of_head for place in of_query)
    assert queries == list(range(96, 128))


def test_two_runs_side_by_side(script: RunScript, tmp_path: Path) -> None:
    for name in (ENDLESS, ENDING):
        make_run(tmp_path / name, f"pos={name}")
    assert script(f"ckpt={ENDLESS},{ENDING}")[::2] == (0, "")
    page = Page(tmp_path / ENDLESS / f"explanation-{ENDING}.html")
    assert f"How {ENDLESS} and {ENDING} know position" in page.text
    assert len(page.maps) == 2
    assert page.text.count("Cut to the last n tokens") == 1
    assert script(f"ckpt={ENDLESS},{ENDLESS}", "out=same.html")[0] == 0
    make_run(tmp_path / "full", f"pos={ENDING}", "data.vocabulary=full")
    assert_refused(script(f"ckpt={ENDLESS},full"), "reads another vocabulary than")


def test_a_folder_of_two_runs(script: RunScript, tmp_path: Path, trained: Callable[..., Path]) -> None:
    """They stand side by side, the better one first, on a page in that folder."""
    run = trained(*TASK, f"pos={ENDLESS}")
    for name, loss in (("a", 2.0), ("b", 1.0)):
        shutil.copytree(run, tmp_path / "sweep" / name)
        summary = tmp_path / "sweep" / name / "summary.json"
        summary.write_text(json.dumps(json.loads(summary.read_text()) | {"best_val_loss": loss}))
    assert script("ckpt=sweep")[::2] == (0, "")
    page = Page(tmp_path / "sweep" / "explanation.html")
    assert len(page.maps) == 2
    assert page.text.index("sweep/b") < page.text.index("sweep/a")
    shutil.copytree(run, tmp_path / "sweep" / "c")
    refused = script("ckpt=sweep")
    assert_refused(refused, "ckpt=sweep: has 3 runs; ")
    assert all(f"sweep/{name}" in refused[2] for name in "abc")


def test_the_start_of_a_runs_name_is_enough_where_it_is_one_runs(script: RunScript, tmp_path: Path) -> None:
    """As texts print commands, with dots; of several, each is named."""
    run = make_run(tmp_path / "runs" / "first-seed1-2026", f"pos={ENDLESS}")
    assert script("ckpt=runs/first-...")[0] == 0
    assert (run / "explanation.html").exists()
    shutil.copytree(run, tmp_path / "runs" / "first-seed2-2026")
    refused = script("ckpt=runs/first")
    assert_refused(refused, "ckpt=runs/first: ")
    assert all(f"runs/first-seed{seed}-2026" in refused[2] for seed in (1, 2))


def test_a_model_that_makes_no_use_of_position(
    script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first thing that the page says, with a run that would."""
    monkeypatch.setattr("poslab.explanation.sentences.uses_position", lambda ablations: False)
    make_run(tmp_path / "run", f"pos={ENDLESS}")
    assert script("ckpt=run")[::2] == (0, "")
    page = Page(tmp_path / "run" / "explanation.html")
    said = page.text.index("makes no use of position")
    assert said < page.text.index("Attention by itself")
    (experiment,) = re.findall(r"train.* -m experiment=(\w+)", page.text)
    assert (CONFIGS / "experiment" / f"{experiment}.yaml").exists()


def test_a_scheme_that_is_not_trained(script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.explanation.probe_data.LONGEST", 16)
    assert script(f"pos={ENDLESS}")[::2] == (0, "")
    page = Page(tmp_path / f"explanation-{ENDLESS}.html")
    assert "none: as it is made, before its first step" in page.text
    assert "as it hasn't learned to use any" in page.text
    assert "Cut to the last n tokens" not in page.text
    assert_refused(script("pos=nothing"), "pos=nothing: unknown; ")
    assert_refused(script("pos=nope", f"pos={ENDLESS}"), f"pos={ENDLESS}: name one scheme")
    assert_refused(script(f"pos={ENDLESS}", "pos.nothing=1"), "pos.nothing=1: unknown setting")
    assert_refused(script(), "ckpt=: name a run, or in its place a scheme as pos=NAME")
    assert_refused(script("ckpt=run", "pos.nothing=1"), "ckpt=run: the run has its scheme")


def test_a_run_of_a_task(script: RunScript, tmp_path: Path, trained: Callable[..., Path]) -> None:
    run = trained(*TASK, f"pos={ENDLESS}")
    assert script(f"ckpt={run}", "out=page.html")[::2] == (0, "")
    page = Page(tmp_path / "page.html")
    assert "one answer of each example" in page.text
    assert {word[0] for word in page.maps[0]["words"]} == set("kv~")
    assert "Which of its answers are right" in page.text
    assert page.html.count('scope="row">depth ') == 4
    assert_refused(
        script(f"ckpt={run}", "out=page.html", "sentence=k1v1"), "k1v1 is no symbol; separate symbols by spaces"
    )


def test_a_strangers_scheme(script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strangers_of_a_page.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(str(tmp_path))
    make_run(tmp_path / "run", "pos=own", "pos._target_=strangers_of_a_page.Hearsay")
    assert_refused(script("ckpt=run"), "which is none of poslab's parts; allow_code=true imports it")
    assert script("ckpt=run", "allow_code=true")[::2] == (0, "")
    page = Page(tmp_path / "run" / "explanation.html")
    assert "Positions by hearsay." in page.text
    assert "Cut to the last n tokens" in page.text
    assert "hearsay: pictures" in page.text
    failing = script("pos._target_=strangers_of_a_page.Failing")
    assert_refused(failing, "pos=Failing.explain (strangers_of_a_page.py, line 12): raises ValueError: no colours left")


def test_a_text_that_is_gone(script: RunScript, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(VERDICT.read_text())
    run = make_run(
        tmp_path / "run", "data=text", f"data.path={text}", f"data.cache_dir={tmp_path}/cache", f"pos={RICHEST}"
    )
    text.unlink()
    assert script("ckpt=run")[::2] == (0, "")
    page = Page(run / "explanation.html")
    assert "the text it was trained on can't be read" in page.text
    assert "What the model does with it" not in page.text
    assert "map" not in page.tags
    assert "No attention is drawn here" in page.text
