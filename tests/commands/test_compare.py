"""scripts/compare.py: what it says, and real runs."""

import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import REPOSITORY, SMOKE, RunScript, assert_refused
from runs_to_compare import SUMMARY, repeated, runs_by_group, write_run, write_task_run

from poslab.comparison.curves import read_curve
from poslab.comparison.repeat import command_of
from poslab.config.files import CLAIMS
from seedstats.claims import read_claims


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


@pytest.mark.usefixtures("no_figures", "blank_pictures")
@pytest.mark.parametrize(
    ("test_loss", "metric"),
    [({}, "last validation loss"), ({"test_loss": 4.5}, "test loss")],
    ids=["validated", "tested"],
)
def test_loss_is_the_one_by_which_runs_of_a_text_are_compared(
    test_loss: dict[str, float], metric: str, tmp_path: Path, script: RunScript
) -> None:
    """As a setting and in claims, whatever models without training would be worth."""
    for pos, seed in itertools.product(("absolute", "t5"), (1, 2, 3)):
        write_run(tmp_path / "runs", pos, seed, 4.0 + seed / 10, untrained_losses={"bigram": 5.4}, **test_loss)
    (tmp_path / "claims.yaml").write_text("- {scheme: t5, at_most: 5, metric: loss}\n")
    code, out, errors = script(
        f"runs={tmp_path}/runs", "metric=loss", f"claims={tmp_path}/claims.yaml", "measure=false"
    )
    assert (code, errors) == (0, "")
    assert f"t5 at most 5 in {metric}" in out
    assert f"  n  {metric}  " in out


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_claims_that_come_with_poslab_are_tested_on_runs(tmp_path: Path, script: RunScript) -> None:
    lengths = {"back": (64, 96), "recall": (144,), "copy": (60,), "majority": (51,)}
    for (data, tested), seed in itertools.product(lengths.items(), (1, 2)):
        for pos in ("nope", "absolute", "absolute_offset", "rope", "shaw", "t5"):
            share = {"nope": 0.1, "absolute": 0.05}.get(pos, 0.9) + seed / 100
            write_task_run(tmp_path / "runs", pos, seed, dict.fromkeys((10, *tested), share), data=data, answers={})
    code, out, errors = script(f"runs={tmp_path}/runs", "claims=length_generalization")
    assert (code, errors) == (0, "")
    said = [line for line in out.splitlines() if re.match("- (Not shown|The opposite shown): ", line)]
    assert len(said) == len(read_claims(CLAIMS / "length_generalization.yaml"))
    assert "Claims of length_generalization, " in out  # and since when they stand
    assert any("absolute at most 0.1 in exact on back at 64" in line for line in said)  # in the file it is a scheme


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
    assert files == {"figures", "report.html", "report.md", "results.csv", "by_length.csv"}
