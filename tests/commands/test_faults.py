"""A campaign of faults: processes that are killed, also while they write a checkpoint, and disks that are full."""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from common import FULL_CAMPAIGN, REPOSITORY, RICHEST, SCHEMES, compose_config
from processes import Script
from runs_to_resume import TINY, assert_same_run, content_of, resume

from poslab.training.train import train

SETTINGS = [*TINY, "trainer.limit_train_batches=12", "model.embed_dim=32"]
PRECISIONS = ("32-true", "bf16-mixed", "64-true")
KILLS, WHILE_WRITING = (20, 6) if FULL_CAMPAIGN else (8, 3)


def start(settings: list[str], folder: Path, resumes: bool = False) -> Any:
    """A process that trains, or resumes, with torch loaded already."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["poslab.training.train"])
    process = context.Process(target=_work, args=(settings, folder, resumes))
    process.start()
    return process


def _work(settings: list[str], folder: Path, resumes: bool) -> None:
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    if resumes:
        resume(folder)
    else:
        train(compose_config(*settings, f"run_dir={folder}"))


def kill_while_writing(process: Any, folder: Path, after: float) -> bool:
    """Kill while a checkpoint is being written, so many seconds after the start; return whether it was half written."""
    started = time.perf_counter()
    checkpoints = folder / "checkpoints"
    while process.is_alive():
        if any(checkpoints.glob("last.ckpt.*.tmp")) and time.perf_counter() - started > after:
            process.kill()
            process.join()
            return any(checkpoints.glob("last.ckpt.*.tmp"))
    return False


def kill_after(process: Any, seconds: float) -> bool:
    """Kill after so many seconds; return whether the process was still running."""
    process.join(timeout=seconds)
    process.kill()
    process.join()
    return bool(process.exitcode == -signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Across precisions, and in a full campaign schemes; a third of the kills while a checkpoint is being written, some
    of a run that was killed before. Each run then ends as the one that nobody killed."""
    draw = random.Random(5)
    cases = [(scheme, precision) for precision in PRECISIONS for scheme in (SCHEMES if FULL_CAMPAIGN else [RICHEST])]
    whole: dict[tuple[str, str], tuple[Path, float]] = {}
    kills = {"at a random moment": 0, "while writing": 0}
    number = 0
    while sum(kills.values()) < KILLS:
        scheme, precision = case = cases[number % len(cases)]
        number += 1
        settings = [*SETTINGS, f"pos={scheme}", f"trainer.precision={precision}"]
        if case not in whole:
            folder, started = tmp_path / f"{scheme}-{precision}", time.perf_counter()
            train(compose_config(*settings, f"run_dir={folder}"))
            whole[case] = folder, time.perf_counter() - started
        reference, seconds = whole[case]
        folder = tmp_path / f"killed-{number}"
        for attempt in range(draw.choice([1, 1, 2])):
            process = start(settings, folder, resumes=attempt > 0)
            moment = draw.uniform(0, seconds)
            if kills["while writing"] < WHILE_WRITING:
                kills["while writing"] += kill_while_writing(process, folder, moment / 2)
            else:
                kills["at a random moment"] += kill_after(process, moment)
            time.sleep(1)  # TensorBoard reads event files by the second in their names
            if not (folder / "config.yaml").exists() or (folder / "summary.json").exists():
                break
        if not (folder / "config.yaml").exists():  # killed before it was a run: it is begun once more
            train(compose_config(*settings, f"run_dir={folder}"))
        elif not (folder / "summary.json").exists():
            resume(folder)
        assert_same_run(folder, reference)
    print(f"campaign: killed {kills}")
    assert kills["while writing"] >= WHILE_WRITING


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system can't be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        while opened.write(b"0" * 4096):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs")
def test_full_disk(small_disk: Path, trained: Callable[..., Path], tmp_path: Path) -> None:
    """A run ends with one line; its checkpoint is whole, and with more room it resumes to the same end."""
    whole, cut = trained(*TINY), small_disk / "run"
    filler = small_disk / "filler"
    script = Script("train", *TINY, f"run_dir={cut}", cwd=tmp_path)
    script.wait_for(cut / "checkpoints" / "last.ckpt")
    fill(filler)
    result = script.finish()
    assert result.returncode == 1, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "No space left on device" in line
    assert "Traceback" not in result.stderr
    assert not (cut / "summary.json").exists()
    assert content_of(cut)["state"]["step"] >= 2
    assert not list(cut.rglob("*.tmp"))
    filler.unlink()
    time.sleep(1)  # TensorBoard reads event files by the second in their names
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    resume(cut)
    assert_same_run(cut, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption(number: signal.Signals, trained: Callable[..., Path], tmp_path: Path) -> None:
    settings = [*TINY, "trainer.limit_train_batches=20"]
    cut = tmp_path / "runs" / "cut"
    script = Script("train", *settings, "run_dir=runs/cut", cwd=tmp_path)
    script.wait_for(cut / "checkpoints" / "last.ckpt")
    script.send_signal(number)
    result = script.finish()
    time.sleep(1)  # TensorBoard reads event files by the second in their names
    step = content_of(cut)["state"]["step"]
    command = f"python {REPOSITORY / 'scripts' / 'train.py'} resume=runs/cut"
    message = f"interrupted after step {step}, which is saved; resume with: {command}"
    assert result.stderr.strip().splitlines()[-1] == message
    assert result.returncode == 128 + number
    assert not (cut / "summary.json").exists()
    assert resume(cut)["steps"] > step
    assert_same_run(cut, trained(*settings))
    assert json.loads((cut / "summary.json").read_text())["steps"] > 10
