"""Folders of runs: a new one for each, never one that is in use."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from poslab.errors import SettingError
from poslab.runs.folder import new_run_folder


def test_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(SettingError, match="is not empty"), new_run_folder(str(tmp_path), "t5", 1):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SettingError, match="can't be written"), new_run_folder(str(folder), "t5", 1):
            pass
    assert (tmp_path / "file").read_text() == "mine"


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
