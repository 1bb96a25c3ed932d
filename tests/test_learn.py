"""Pages for learners: their code, commands and notebook run, and solutions of the exercises pass the contract."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from common import REPOSITORY, RunScript, python_in
from runs_to_evaluate import make_run

from poslab.contract.checks import CHECKS

LEARN, NOTEBOOK = REPOSITORY / "data/learn", REPOSITORY / "scripts/notebooks/first_look.ipynb"
(ORDER,) = python_in("data/learn/README.md")
PERMUTE, CONVERT, IN_OWN_MODEL = python_in("data/learn/rope_pairs.md")
SHORT = ("model.embed_dim=32", "trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.limit_val_batches=1")


def test_the_causal_mask_tells_order(capsys: pytest.CaptureFixture[str]) -> None:
    exec(ORDER, {})
    without_mask, one_layer, two_layers = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert max(without_mask, one_layer) < 1e-12
    assert two_layers > 1e-4


def test_pairs_of_a_run_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And another order of the rows gives other logits; the two permutations are inverse."""
    run = make_run(tmp_path / "run", "pos=rope", "data=shakespeare_characters")
    convert, names = CONVERT.replace("runs/learn/rope", str(run)), {}
    exec(PERMUTE + convert, names)
    exec(PERMUTE + convert.replace("halves_to_adjacent(", "adjacent_to_halves("), {})
    right, wrong = (float(number) for number in re.findall(r"tensor\(([\d.e+-]+)", capsys.readouterr().out))
    assert right < 1e-4 < 1e-2 < wrong
    rows = torch.randn(48, 5)
    assert torch.equal(names["adjacent_to_halves"](names["halves_to_adjacent"](rows, 3), 3), rows)


def test_pairs_in_a_model_of_ones_own() -> None:
    pytest.importorskip("poslab.nn")
    exec(PERMUTE + IN_OWN_MODEL, {})


@pytest.mark.parametrize("exercise", ["MyWindow", "MyALiBi", "MyT5", "MyHalfRoPE"])
def test_an_exercise(exercise: str, run_script: RunScript) -> None:
    """Its solution passes the contract, and without one the check says what is to be written, as the page shows."""
    code, output, errors = run_script("check", f"solutions.{exercise}")
    results = {line[:22].strip(): line[22:] for line in output.splitlines()[1:] if line}
    assert (code, errors, results.keys()) == (0, "", CHECKS.keys())
    assert {part for part, result in results.items() if not result.startswith("ok")} <= {"device", "export"}

    code, output, errors = run_script("check", f"exercises.{exercise}")
    title, hooks, *_ = output.splitlines()
    assert hooks.startswith(f"hooks                 differs: pos={exercise}.")
    assert "NotImplementedError: return " in hooks
    assert (code, errors) == (1, f"error: exercises.{exercise}: 1 part of the contract differs\n")
    page = (LEARN / "exercises.md").read_text()
    assert f"scripts/check.py {title}\n" not in page or f"    {hooks}\n" in page


@pytest.mark.slow
def test_commands_of_the_pages(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, with two steps of training; the pictures that they draw are those of the pages."""
    monkeypatch.chdir(tmp_path)
    text = "".join((LEARN / page).read_text() for page in ("README.md", "rope_pairs.md"))
    for name, arguments in re.findall(r"^    python scripts/(\w+)\.py(.*)$", text, flags=re.MULTILINE):
        result = run_script(name, *arguments.split(), *(SHORT if name == "train" else ()))
        assert result[0] == 0, result
    assert run_script("pictures")[0] == 0
    shown = set(re.findall(r"\]\(pictures/(.*?)\)", text))
    for pictures in (Path("data/learn/pictures"), LEARN / "pictures"):
        assert {path.name for path in pictures.iterdir()} == shown


def test_outputs_of_the_notebook_are_small() -> None:
    outputs = [output for cell in json.loads(NOTEBOOK.read_text())["cells"] for output in cell.get("outputs", [])]
    assert "error" not in {output["output_type"] for output in outputs}
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert max(map(len, pictures), default=0) < 60_000
    assert len(json.dumps(outputs)) - sum(map(len, pictures)) < 20_000


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # where poslab is
    notebook = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    *_, comparison, _ = notebook.cells
    assert re.search(r"^\w+ is (best|better|worse)", comparison.outputs[0].text, flags=re.MULTILINE)
