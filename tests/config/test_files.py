"""Files that appear whole or not at all: the system calls that decide what a reader, or a power cut, may find."""

import errno
import os
from pathlib import Path

import pytest
import torch
from common import compose_config
from runs_to_resume import TINY

from poslab.config.files import default_cache_dir, missing
from poslab.errors import RunStopped
from poslab.runs.checkpoint_files import save_weights
from poslab.training.resume_points import CheckpointFiles
from poslab.training.train import train


@pytest.mark.parametrize("name", ["last.ckpt", "best.safetensors"])
def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[str, int]] = []  # with the inode of the file that the call is about
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append(("fsync", os.fstat(file).st_ino)), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(("replace", os.stat(a).st_ino)), replace(a, b)))
    file = tmp_path / name
    CheckpointFiles().save_checkpoint({"state_dict": {"weight": torch.zeros(3)}, "poslab": {"observed": None}}, file)
    content, folder = file.stat().st_ino, tmp_path.stat().st_ino
    assert calls == [("fsync", content), ("replace", content), ("fsync", folder)]


@pytest.mark.parametrize("kept", ["best.safetensors", "last.ckpt", "previous.ckpt"])
def test_a_full_disk_leaves_what_was_there_and_says_what_that_is(
    kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / kept).write_text("as before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunStopped) as stopped:
        CheckpointFiles().save_checkpoint({"weight": torch.zeros(3)}, folder / "last.ckpt")
    start = "starts over, as no checkpoint is" if kept == "best.safetensors" else "resumes from the checkpoint"
    assert str(stopped.value).endswith(
        f"last.ckpt: can't be written: No space left on device; resume={tmp_path}/run {start} before it"
    )
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(kept, "as before")]


def test_every_file_of_a_run_appears_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    renamed: set[Path] = set()
    replace = os.replace

    def note(source: Path, target: Path) -> None:
        if Path(source) != Path(target):
            renamed.add(Path(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    run, cache = tmp_path / "run", tmp_path / "cache"
    train(compose_config(*TINY, f"run_dir={run}", f"data.cache_dir={cache}", "evaluation.lengths=[8]"))
    written = {path for path in tmp_path.rglob("*") if path.is_file() and "tfevents" not in path.name}
    assert {run / "config.yaml", run / "summary.json", run / "evaluation.json"} <= written
    assert list(cache.iterdir())
    assert written <= renamed


def test_weights_can_be_read_by_whom_other_files_can(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    save_weights(tmp_path / "weights.safetensors", {"model.w": torch.zeros(2)}, {"observed": None})
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_where_a_checkout_may_not_be_written_the_cache_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/somebody/cache")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert default_cache_dir() == Path("/home/somebody/cache/poslab")


# What is typed in the folder below, and what is meant: nothing where that is not
# clear.
MISTYPED = {
    "my.tx": "my.txt",
    "My.txt": "my.txt",
    "mytxt": "my.txt",
    "novles": "novels",
    "novels/part1.text": "novels/part1.txt",
    "novels/prat1.txt": "novels/part1.txt",
    "novels/part3.txt": "",
    "novels/part.txt": "",
    "t5-seed1-20261126-150141": "runs/t5-seed1-20261126-150141",
    "ablation": "runs/ablation",
    "runs/abaltion": "runs/ablation",
    "runs/t5_seed1-20261126-150141": "runs/t5-seed1-20261126-150141",
    "runs/t5-seed1-20261126-150142": "",
    "runs/t5-seed2-20261126-150141": "",
    "runs/rope-seed1-20261126-150141": "",
    "run/ablation": "",
    "nowhere/my.txt": "",
    "my.txt/x": "",
    "novels": "",
    "x": "",
    "~/nowhere/my.txt": "",
}


@pytest.mark.parametrize("typed", MISTYPED)
def test_the_path_that_is_meant_is_named_and_no_other(
    typed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/ablation", "runs/t5-seed1-20261126-150141", "novels"):
        Path(folder).mkdir(parents=True)
    for file in ("my.txt", "novels/part1.txt", "novels/part2.txt"):
        Path(file).touch()
    meant = MISTYPED[typed]
    assert missing(typed, "no such file") == ("no such file" + (f"; did you mean {meant}?" if meant else ""))
