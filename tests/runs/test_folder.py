"""Folders of runs: a new one for each, never one that is in use."""

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from common import RunScript, assert_refused

from poslab.runs.folder import RunFolder, new_run_folder, run_at


def test_names_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda pattern: "20260102-030405")
    with ExitStack() as running:
        folders = [running.enter_context(new_run_folder(None, "my:scheme/α", 3)) for _ in range(3)]
    assert [folder.path.name for folder in folders] == [
        "my_scheme_-seed3-20260102-030405",
        "my_scheme_-seed3-20260102-030405-2",
        "my_scheme_-seed3-20260102-030405-3",
    ]


def test_the_last_run_is_the_one_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run_script: RunScript
) -> None:
    """In a sweep, too; a run without a checkpoint yet is none, and a folder of that name is itself."""
    monkeypatch.chdir(tmp_path)
    assert run_at("last") == Path("last")
    for age, name in enumerate(("sweep/newest", "older")):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / name / "checkpoints" / "best.safetensors").touch()
        os.utime(tmp_path / "runs" / name / "checkpoints", (1e9 - age, 1e9 - age))
    (tmp_path / "runs" / "begun" / "checkpoints").mkdir(parents=True)
    assert run_at("last") == Path("runs/sweep/newest")
    assert capsys.readouterr().err == "note: the last run is runs/sweep/newest\n"
    _, composed, _ = run_script("train", "--cfg", "job", "init_from=last")
    assert "\ninit_from: runs/sweep/newest\n" in composed
    assert_refused(run_script("train", "-m", "init_from=last"), "init_from=last: the newest run is soon one of")
    (tmp_path / "last").mkdir()
    assert run_at("last") == Path("last")


def test_the_last_run_to_resume_is_one_that_nobody_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [Path("runs") / name for name in ("old", "sweep/live")]
    for age, run in enumerate(runs):
        (run / "checkpoints").mkdir(parents=True)
        (run / "checkpoints" / "last.ckpt").touch()
        os.utime(run / "checkpoints", (age, age))
    assert run_at("last", idle=True) == run_at("last") == runs[1]
    with RunFolder(runs[1]).held("resume"):
        assert run_at("last", idle=True) == runs[0]
        assert run_at("last") == runs[1]
        with RunFolder(runs[0]).held("resume"):
            assert run_at("last", idle=True) == Path("last")
