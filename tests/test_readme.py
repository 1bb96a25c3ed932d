"""READMEs and pages: their examples run, their links and paths exist."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from common import ALIBI, ENDLESS, EXAMPLES, GENERATION, MEASURED, PYTHON, REPOSITORY, make_scheme
from runs_to_evaluate import make_run

import poslab
from maintenance.address import current_address
from poslab import __version__
from poslab.positions import ModelShape
from poslab.positions.alibi import ALiBi

FOLDERS = (".github", "configs", "data", "scripts", "src", "tests")
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CHANGELOG.md")),
    *sorted(page for folder in FOLDERS for page in (REPOSITORY / folder).rglob("*.md")),
]


def test_python_examples() -> None:
    names: dict = {}
    exec(PYTHON, names)
    assert names["logits"].shape == (8, 64, 1000)
    exec(EXAMPLES, names := {})
    assert names["logits"].shape == (8, 64, 1000)
    assert names["bias"].shape == (1, 4, 14, 20)
    assert names["out"].shape == names["with_fire"].shape == (1, 4, 32, 16)


def test_generation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (named,) = re.findall(r'poslab.load\("(.*?)"\)', GENERATION)
    run = make_run(tmp_path / "run", f"pos={ENDLESS}", "data.vocabulary=observed")
    exec(GENERATION.replace(named, str(run)), {})
    text = capsys.readouterr().out
    assert text.startswith("I had always thought")
    assert len(text) > 100


def test_what_a_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    names = {"poslab": poslab, "model": poslab.load(make_run(tmp_path / "run", "pos=t5", "data.vocabulary=full"))}
    exec(MEASURED, names)
    shape = names["model"].shape
    assert names["maps"].shape == (shape.num_layers, shape.num_heads, 4, 4)
    assert names["bias"].shape == (shape.num_layers, shape.num_heads, 64)
    assert names["losses"].shape == (64,)


@pytest.mark.parametrize("heads", [4, 6, 12])
def test_alibi_is_alibi(heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes as in the paper: 1/4, 1/16, 1/64, 1/256 for four heads; and as in its code for 6 and 12."""
    (tmp_path / "alibi_of_the_readme.py").write_text(ALIBI)
    monkeypatch.syspath_prepend(str(tmp_path))
    from alibi_of_the_readme import MyALiBi

    shape = ModelShape(10, 2 * heads, 1, heads)
    theirs, ours = (scheme.relative({}, shape, 0, range(10)).bias for scheme in (MyALiBi(), ALiBi()))
    assert torch.allclose(theirs.double(), ours)
    assert heads != 4 or torch.equal(theirs[:, 9], -9 * torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]))


def test_what_is_stable_exists() -> None:
    section = (REPOSITORY / "src/poslab/README.md").read_text().partition("## What is stable")[2].partition("\n## ")[0]
    packages = re.findall(r"`((?:poslab|seedstats)[\w.]*)`", section)
    assert len(packages) > 4
    for package in map(importlib.import_module, packages):
        assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_an_index_of_a_room_names_all_its_files() -> None:
    """Where the head of a package has a line for some of its files, and a file begins such a line."""
    rooms = {init.parent: init.read_text() for init in (REPOSITORY / "src/poslab").rglob("__init__.py")}
    indexed = {room: text for room, text in rooms.items() if re.search(r"^\w+\.py  +\w", text, flags=re.MULTILINE)}
    assert len(indexed) > 2
    missing = [file for room, text in indexed.items() for file in room.glob("[!_]*.py") if file.name not in text]
    assert missing == []


def test_the_table_of_schemes() -> None:
    text = (REPOSITORY / "src/poslab/positions/README.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\(\w+\.py\) \| .* \| (.*) \| (.*) \| .*\|$", text, flags=re.MULTILINE)
    shape = ModelShape(32, 32, 2, 2)
    front = (REPOSITORY / "README.md").read_text().partition("## The schemes")[2].partition("\n## ")[0]
    assert {name for name, *_ in rows} == {*re.findall(r"`(\w+)`", front)}
    for name, learned, beyond in rows:
        scheme = make_scheme(name)
        assert not (learned == "nothing" and scheme.tables(shape)), name
        assert ("refused" in beyond) == (scheme.max_length(shape) is not None), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists(), target
        titles = re.findall(r"^#+ (.+)$", linked.read_text(), flags=re.MULTILINE) if heading else []
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}  # as GitHub makes them
        assert heading in {"", *anchors}, target
    for path in re.findall(r"`((?:src|tests|configs|scripts|data)/[\w./-]+)`", page.read_text()):
        if "my_alibi" not in path and ".cache" not in path:
            assert (REPOSITORY / path).exists(), path


def test_scripts_that_a_text_tells_to_run_exist() -> None:
    """On pages, in docstrings, and in comments of settings."""
    kinds = {".md", ".py", ".yaml", ".toml"}
    texts = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*") if file.suffix in kinds]
    for text in (REPOSITORY / "README.md", *texts):
        for path in re.findall(r"python ((?:scripts|tests)/[\w/]+\.py)", text.read_text()):
            assert (REPOSITORY / path).is_file(), f"{text}: {path}"


def test_what_is_cited_is_this_version() -> None:
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert (cited["title"], cited["version"]) == ("poslab", __version__)
    released = f"## {cited['version']} ({cited['date-released']})\n"
    assert released in (REPOSITORY / "CHANGELOG.md").read_text()


def test_all_addresses_are_that_of_the_project() -> None:
    """What scripts/maintenance/address.py sets in one go."""
    address = current_address()
    files = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    naming = {}
    for file in map(Path, files.splitlines()):
        if (REPOSITORY / file).suffix in {".md", ".toml", ".cff", ".ipynb", ".py", ".yml", ".yaml"}:
            text = (REPOSITORY / file).read_text(encoding="utf-8")
            if found := re.findall(r"github(?:\.com)?/([\w.-]+/poslab)\b", text):
                naming[file.as_posix()] = {*found}
    assert [file for file, addresses in naming.items() if addresses != {address}] == []
    expected = {"CITATION.cff", "README.md", "pyproject.toml", "scripts/notebooks/first_look.ipynb"}
    assert expected | {"src/seedstats/pyproject.toml"} <= set(naming)


def test_seedstats_has_the_licence_of_the_whole() -> None:
    assert (REPOSITORY / "src/seedstats/LICENSE").read_text() == (REPOSITORY / "LICENSE").read_text()
