"""scripts/compare.py: what it says, and real runs."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import REPOSITORY, SMOKE, RunScript, assert_refused
from runs_to_compare import SUMMARY, repeated, runs_by_group, write_run

from poslab.comparison.curves import read_curve
from poslab.comparison.repeat import command_of


def test_why_there_is_nothing_to_compare(tmp_path: Path, script: RunScript) -> None:
    (write_run(tmp_path / "broken", "t5") / "summary.json").write_text("{")
    said = "runs=broken: no finished run to compare (broken/t5-seed1: summary.json can't be read"
    assert_refused(script("runs=broken"), said)


@pytest.mark.usefixtures("no_figures")
def test_a_single_run_and_two(tmp_path: Path, script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (write_run(tmp_path / "runs", pos, loss=loss) for pos, loss in (("absolute", 4.0), ("t5", 3.75)))
    code, out, _ = script(f"runs={first}")
    assert code == 0
    assert "\nOnly absolute is here (1 seed): there is nothing to compare it with.\n" in out
    code, out, _ = script(f"runs=[{first},{second}]")
    assert code == 0
    assert "- t5 was better than absolute: 0.250 nats in one run each; one run says nothing about chance" in out
    monkeypatch.chdir(first)
    assert script("runs=.")[0] == 0
    reports = list(tmp_path.rglob("report.html"))
    assert len(reports) >= 1
    assert all(path.parents[1] == tmp_path / "runs" and path.parent.name.startswith("report-") for path in reports)


@pytest.mark.usefixtures("no_figures")
def test_command_on_the_page(tmp_path: Path, script: Callable[..., Any]) -> None:
    write_run(tmp_path / "my runs", "t5")
    argument = f"runs={tmp_path}/my runs"
    code, _, _ = script(argument, "effect=0.05")
    assert code == 0
    page = (tmp_path / "my runs" / "report" / "report.md").read_text()
    (line,) = [line for line in page.splitlines() if "scripts/compare.py" in line]
    assert shlex.split(line) == ["python", str(REPOSITORY / "scripts" / "compare.py"), argument, "effect=0.05"]


def test_the_runs_written_here_are_like_real_ones(trained: Callable[..., Path], tmp_path: Path) -> None:
    run = trained(*SMOKE, "pos=t5")
    real = json.loads((run / "summary.json").read_text())
    assert set(real) == set(SUMMARY)
    (ours,), (theirs,) = (runs_by_group(folder)["t5"] for folder in (write_run(tmp_path, "t5", seed=2), run))
    assert set(ours.config) == set(theirs.config)
    assert repeated(command_of([theirs])) == repeated(command_of([ours])) | {"seed": 1}
    real = read_curve(run)
    assert (len(real.train), len(real.validation)) == (6, 2)


def test_what_it_writes_of_real_runs(trained: Callable[..., Path], tmp_path: Path, script: RunScript) -> None:
    shutil.copytree(trained(*SMOKE, "pos=t5"), tmp_path / "runs" / "t5")
    assert script()[0] == 0
    files = {path.name for path in (tmp_path / "runs" / "report").iterdir()}
    assert files == {"figures", "report.html", "report.md", "results.csv"}
