"""Folders of runs: a new one for each, never one that is in use."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from poslab.runs.folder import new_run_folder


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
