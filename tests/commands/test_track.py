"""Command `track`, end to end in a tiny track of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from common import ALIBI, REPOSITORY, RunScript, assert_refused

from poslab.track.board import PAGE
from poslab.track.rules import FILE

TINY = {"trainer.max_steps": 3, "model.embed_dim": 16, "evaluation.last": 32}
SEEDS = [301, 302, 303]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a track with a text and a task, of few steps."""
    rules = yaml.safe_load((REPOSITORY / "data/track" / FILE).read_text())
    rules["data"] = {name: rules["data"][name] for name in ("text", "back")}
    for about in rules["data"].values():
        about["settings"] |= TINY
        about["quick"] = {}
    rules["data"]["back"]["settings"].pop("evaluation.last")
    rules |= {"rates": [0.002, 0.004], "tuning_seeds": [1], "seeds": SEEDS, "cost_seeds": [1]}
    rules["cost"] |= TINY
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / FILE).write_text(yaml.safe_dump(rules))
    return tmp_path / "tiny"


@pytest.mark.slow
def test_an_entry_that_was_killed_goes_on_and_ends_as_one_that_was_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "my_file.py").write_text(ALIBI)
    command = [sys.executable, str(REPOSITORY / "scripts" / "track.py"), "my_file.MyALiBi", "pos.steepest=0.5"]
    command += [f"track={folder}"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    with (tmp_path / "first.txt").open("w") as output:
        first = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
        runs = tmp_path / "runs" / "tiny" / "version1"
        while not (finished := [*runs.glob("my_file/tuning/*/summary.json")]):
            assert first.poll() is None, (tmp_path / "first.txt").read_text()
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    before = {path: path.stat().st_mtime_ns for path in finished}
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    assert {path: path.stat().st_mtime_ns for path in finished} == before

    rows = pd.read_csv(folder / "my_file.csv")
    confirmed = rows[rows["stage"] == "confirming"].groupby(["name", "data"])["seed"].apply(list)
    assert [sorted(seeds) for seeds in confirmed] == [SEEDS] * 4
    assert rows["source"].notna().all()
    assert {*rows.loc[rows["name"] == "my_file", "settings"]} == {"steepest=0.5"}
    assert (folder / "entries" / "my_file.py").read_text() == ALIBI
    assert "| `my_file` |" in (folder / PAGE).read_text()
    assert "than rope" in second.stdout

    # The name is that of this source.
    (tmp_path / "my_file.py").write_text(f"{ALIBI}\n# edited\n")
    edited = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert edited.returncode == 2
    assert edited.stderr.startswith("error: name=my_file:")


@pytest.mark.slow
def test_a_quick_try_says_that_it_is_no_entry(folder: Path, tmp_path: Path) -> None:
    rules = yaml.safe_load((folder / FILE).read_text())
    del rules["data"]["back"]
    (folder / FILE).write_text(yaml.safe_dump(rules))
    command = [sys.executable, str(REPOSITORY / "scripts" / "track.py"), "alibi", "quick=true", f"track={folder}"]
    quick = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert quick.returncode == 0, quick.stdout + quick.stderr
    assert "no entry" in quick.stdout
    assert [*folder.glob("*.csv")] == []


def test_a_scheme_is_needed(script: RunScript) -> None:
    assert_refused(script(), "pos=")


@pytest.mark.parametrize("typed", [("rope", "pos.base=500"), ("alibi", "name=nope"), ("alibi", "name=a/b")])
def test_a_name_that_would_hide_another_is_refused(typed: tuple[str, str], script: RunScript, folder: Path) -> None:
    assert_refused(script(*typed, f"track={folder}"), "name=")


def test_an_unknown_scheme_is_refused(script: RunScript, folder: Path) -> None:
    assert_refused(script("shwa", f"track={folder}"), "pos=shwa")


def test_a_folder_without_rules_is_refused(script: RunScript, tmp_path: Path) -> None:
    assert_refused(script("board", f"track={tmp_path}"), FILE)


def test_a_board_is_made_of_the_entries_in_the_folder(script: RunScript, folder: Path) -> None:
    code, said, errors = script("board", f"track={folder}")
    assert code in (None, 0), errors
    assert str(folder / PAGE) in said
    assert (folder / PAGE).exists()
