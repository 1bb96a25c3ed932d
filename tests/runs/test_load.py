"""Folders that hold something else than runs: each is named and left out, and the rest is compared."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from corpora import LFS_POINTER
from runs_to_compare import SUMMARY, change_summary, compare_folders, write_run

from poslab.errors import SettingError
from poslab.runs.load import read_runs


def reasons(*folders: Path) -> dict[str, str]:
    return {left.folder.name: left.reason for left in read_runs([str(folder) for folder in folders])[1]}


def file_is(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def change_config(folder: Path, **changes: object) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(config | changes))


BOMB = "a0: &a0 [[x]]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
BOMB += "pos: {_target_: x, of: *a11}\nmodel: {}\ndata: {}\n"
FOREIGN = "says nothing of pos, pos_settings, pos_target, seed, best_val_loss, ...: "
SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "unfinished": (lambda folder: (folder / "summary.json").unlink(), "unfinished: it has no summary.json"),
    "truncated": (file_is("summary.json", json.dumps(SUMMARY)[:200]), "summary.json can't be read"),
    "binary": (lambda folder: (folder / "summary.json").write_bytes(b"\xff\xfe\x00"), "summary.json can't be read"),
    "a pointer": (file_is("summary.json", LFS_POINTER), "summary.json can't be read: Git LFS"),
    "a pointer of settings": (file_is("config.yaml", LFS_POINTER), "config.yaml can't be read: Git LFS"),
    "text for a seed": (lambda folder: change_summary(folder, seed="x"), "summary.json has something else for seed"),
    "a seed below 0": (lambda folder: change_summary(folder, seed=-1), "summary.json has no seed of a run"),
    "a seed beyond all": (lambda folder: change_summary(folder, seed=2**70), "summary.json has no seed of a run"),
    "null for measures": (lambda folder: change_summary(folder, measures=None), "something else for measures"),
    "text for a loss": (lambda folder: change_summary(folder, test_loss="low"), "something else for test_loss"),
    "text for a metric": (lambda folder: change_summary(folder, exact={"8": "x"}), "something else for metrics"),
    "nested json": (file_is("summary.json", "[" * 100_000), "summary.json can't be read: it is nested"),
    "nested yaml": (file_is("config.yaml", "[" * 3_000), "config.yaml can't be read"),
    "yaml within itself": (file_is("config.yaml", "pos: &a {_target_: x, of: *a}\nmodel: {}\ndata: {}"), "without end"),
    "a bomb of yaml": (file_is("config.yaml", BOMB), "without end"),
    "a group of text": (lambda folder: change_config(folder, callbacks="x"), "config.yaml is not a run's"),
    "overrides of text": (lambda folder: change_config(folder, overrides=5), "config.yaml is not a run's"),
    "no class": (lambda folder: change_config(folder, pos={"base": 5}), "config.yaml is not a run's"),
    "foreign": (file_is("summary.json", '{"accuracy": 1}'), FOREIGN),
    "null": (lambda folder: change_summary(folder, best_val_loss=None), "its validation loss was never a finite"),
    "no config": (lambda folder: (folder / "config.yaml").unlink(), "unfinished: it has no config.yaml"),
    "broken config": (file_is("config.yaml", "a: [1"), "config.yaml can't be read"),
    "foreign config": (file_is("config.yaml", "pos: shaw"), "config.yaml is not a run's"),
}


@pytest.mark.parametrize(("spoil", "reason"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_run_is_named_and_left_out(spoil: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "t5", 1)
    spoil(write_run(tmp_path, "t5", 2, 1.0))
    compared = compare_folders(tmp_path).groups
    assert {Path(folder).name for group in compared for folder in group.folders.values()} == {
        "absolute-seed1", "t5-seed1",
    }  # fmt: skip
    ((name, said),) = reasons(tmp_path).items()
    assert name == "t5-seed2"
    assert reason in said
    assert len(said) < 300
    assert "\n" not in said


@pytest.mark.parametrize("missing", ["nowhere", "file", ""])
def test_folders_that_are_none(missing: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingError, match="no such folder"):
        read_runs([str(tmp_path / missing) if missing else ""])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    for name in ("photos", ".hidden", "report"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_text("")
    (tmp_path / "report" / "report.html").write_text("an earlier one")
    assert reasons(tmp_path) == {"photos": "no run in it"}


def test_a_link_to_a_run_that_is_gone_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "t5", 1)
    (tmp_path / "t5-seed2").symlink_to(tmp_path / "gone")
    runs, left_out = read_runs([str(tmp_path)])
    assert [run.seed for run in runs] == [1]
    assert [(left.folder.name, left.reason) for left in left_out] == [("t5-seed2", "is a link to nothing")]


def test_runs_at_any_depth_count_once(tmp_path: Path) -> None:
    """A stray file hides none of them."""
    write_run(tmp_path / "a" / "b" / "c", "t5", 1)
    write_run(tmp_path / "a", "t5", 2)
    folder = write_run(tmp_path, "t5", 3)
    (tmp_path / "config.yaml").write_text("mine: true")
    runs, left_out = read_runs([str(tmp_path), str(folder), str(tmp_path)])
    assert sorted(run.seed for run in runs) == [1, 2, 3]
    assert [left.folder for left in left_out] == [tmp_path]


def test_jobs_that_failed_before_they_had_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / ".sweep").mkdir()
    logs = {
        "t5-seed1": "scheme   t5\nerror: killed by SIGKILL\n",
        "absolute-seed1": "error: an earlier attempt\n",
        "shaw-seed1": "scheme   shaw\n",
        "empty": "",
    }
    for name, text in logs.items():
        (tmp_path / ".sweep" / f"{name}.log").write_text(text)
    assert reasons(tmp_path) == {"t5-seed1": "failed: killed by SIGKILL"}


def test_links_that_lead_back_end(tmp_path: Path) -> None:
    """Each run counts once, by its own name."""
    write_run(tmp_path / "a", "t5", 1)
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir(exist_ok=True)
        for other in ("a", "b", "c"):
            (tmp_path / folder / f"0-to-{other}").symlink_to(tmp_path / other)
    (tmp_path / "0-newest").symlink_to(tmp_path / "a" / "t5-seed1")
    runs, _ = read_runs([str(tmp_path)])
    assert [run.folder for run in runs] == [tmp_path / "a" / "t5-seed1"]


def test_unreadable_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs", "t5", 1)
    (tmp_path / "runs" / "locked").mkdir()
    scandir = os.scandir

    def refuse(folder: Path) -> object:
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", refuse)
    assert reasons(tmp_path / "runs") == {"locked": "can't be read: Permission denied"}


@pytest.mark.skipif(os.name != "posix", reason="has no devices among its files")
@pytest.mark.parametrize("name", ["config.yaml", "summary.json"])
def test_a_device_or_a_pipe_in_a_run_is_not_read(name: str, tmp_path: Path) -> None:
    for number, make in enumerate((os.mkfifo, lambda path: path.symlink_to("/dev/zero"))):
        run = write_run(tmp_path / str(number))
        (run / name).unlink()
        make(run / name)
    runs, left_out = read_runs([str(tmp_path)])
    assert not runs
    assert [name in left.reason for left in left_out] == [True, True]
