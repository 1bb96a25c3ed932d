"""Command `check`, as whoever wrote a scheme in one file uses it."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from common import ALIBI, RunScript, assert_refused

from poslab.contract.checks import CHECKS

WINDOWED = """
from dataclasses import dataclass
from poslab.positions import PositionScheme, RelativeTerms

@dataclass(frozen=True)
class Windowed(PositionScheme):
    window: int = 16
    def relative(self, tables, shape, layer, distances):
        return RelativeTerms(0, 0, window=self.window)
    def reference_score(self, tables, text, i, j):
        return (text.q[i] * text.k[j]).sum() / text.shape.head_dim**0.5
"""


def test_the_command(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's scheme passes but for what can't be tried; a mistake is said, and ends in exit code 1."""
    monkeypatch.chdir(tmp_path)
    Path("own_alibi.py").write_text(ALIBI)
    code, output, errors = run_script("check", "own_alibi.MyALiBi", "pos.steepest=0.5")
    title, *lines = output.splitlines()
    assert (code, errors, title) == (0, "", "own_alibi.MyALiBi pos.steepest=0.5")
    results = {line[:22].strip(): line[22:] for line in lines if line}
    assert results.keys() == CHECKS.keys()
    not_tried = {part: result for part, result in results.items() if not result.startswith("ok")}
    assert not_tried.pop("formula of the paper") == "not tried: it has no reference_score"
    assert not_tried.keys() <= {"device", *(() if find_spec("transformers") else ("export",))}
    assert all(result.startswith("not tried: ") for result in not_tried.values())
    code, again, errors = run_script("check", "own_alibi.MyALiBi", "pos.steepest=0.5", "strict=true")
    problem = f"{1 + len(not_tried)} parts of the contract were not tried"
    assert (code, again, errors) == (1, output, f"error: own_alibi.MyALiBi: {problem} (strict=true)\n")

    Path("windowed.py").write_text(WINDOWED)
    code, output, errors = run_script("check", "windowed.Windowed")
    assert "\nformula of the paper  differs: attention over 26 tokens, layer 0 (reference): off by " in output
    assert (code, errors) == (1, "error: windowed.Windowed: 1 part of the contract differs\n")
    Path("broken.py").write_text(ALIBI.replace("bias=bias", "bias=bias.T"))
    code, output, _ = run_script("check", "broken.MyALiBi")
    assert (code, "hooks                 differs: pos=MyALiBi.relative (broken.py, line" in output) == (1, True)
    assert "kernels" not in output


def test_what_is_typed_wrongly(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typed_alibi.py").write_text(ALIBI)
    result = run_script("check", "typed_alibi.MyALiBi", "pos.steep=1")
    assert_refused(result, "pos.steep=1: unknown setting; did you mean")
    assert_refused(run_script("check", "pos.steepest=1"), "must be given first: a scheme by its name, or a class as in")
