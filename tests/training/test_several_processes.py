"""One run of several processes: it is the run of one process alone, whoever starts them."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from common import ENDLESS, REPOSITORY
from processes import Script
from runs_to_resume import TINY, TINY_TASK, assert_same_run, content_of, logged

from poslab.runs.checkpoint import load


@pytest.fixture
def port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


SRUN = {"SLURM_NTASKS": 2, "SLURM_JOB_ID": 77, "SLURM_NODEID": 0}


def together(port: int, folder: Path, *arguments: str, srun: bool = False, size: int = 2) -> list[Script]:
    """Start the processes of one run as torchrun or srun do."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **(SRUN if srun else {"WORLD_SIZE": size})}
    names = ("SLURM_PROCID", "SLURM_LOCALID") if srun else ("RANK", "LOCAL_RANK")
    environments = [common | dict.fromkeys(names, rank) for rank in range(size)]
    return [
        Script("train", *arguments, cwd=folder, env={name: str(value) for name, value in environment.items()})
        for environment in environments
    ]


def ended(scripts: list[Script]) -> tuple[list[int], str, str]:
    """Exit codes, and what all have printed."""
    results = [script.finish(60) for script in scripts]
    codes = [result.returncode for result in results]
    return codes, "".join(result.stdout for result in results), "".join(result.stderr for result in results)


def train_both(port: int, folder: Path, *settings: str, of_two: tuple[str, ...] = (), srun: bool = False) -> str:
    """Train one run of one process in alone/, and one of two processes in run/; return what the two have printed."""
    alone = Script("train", *settings, "run_dir=alone", cwd=folder)
    codes, output, errors = ended(together(port, folder, *settings, *of_two, srun=srun))
    assert alone.finish().returncode == 0
    assert codes == [0, 0], errors
    (run,) = (folder / "runs").iterdir()  # one, which the first process has named
    run.rename(folder / "run")
    return output


def assert_same_curves(folder: Path, *names: str) -> None:
    ours, theirs = logged(folder / "run"), logged(folder / "alone")
    for name in names:
        assert [step for step, _ in ours[name]] == [step for step, _ in theirs[name]]
        assert [value for _, value in ours[name]] == pytest.approx([value for _, value in theirs[name]], abs=1e-5)


WITHOUT_DROPOUT = [*TINY, "trainer=cpu", "model.dropout=0", "data.batch_size=6", "trainer.limit_val_batches=null"]


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def test_two_processes_train_as_one_alone(port: int, tmp_path: Path) -> None:
    settings = [*WITHOUT_DROPOUT, "data.batch_size=32", "trainer.limit_train_batches=null", "pos=t5"]
    assert train_both(port, tmp_path, *settings).count("best     validation loss") == 1
    assert len(logged(tmp_path / "run")["train/loss"]) == 2 * 9  # 288 windows
    assert logged(tmp_path / "run").keys() == logged(tmp_path / "alone").keys()
    assert_same_curves(tmp_path, "train/loss", "val/loss")
    ours, theirs = (summary_of(tmp_path / run) for run in ("run", "alone"))
    for name in ("tokens", "steps", "val_loss_tokens", "best_step"):
        assert ours[name] == theirs[name]
    assert ours["val_loss_tokens"] == 533


def test_a_task_on_two_processes_of_srun(port: int, tmp_path: Path) -> None:
    settings = [*TINY_TASK, "trainer=cpu", "model.dropout=0", "pos=absolute_offset"]  # which draws for each text
    train_both(port, tmp_path, *settings, srun=True)
    assert_same_curves(tmp_path, "train/loss", "val/loss", "val/exact")


def test_a_signal_to_one_saves_all_and_the_run_resumes_to_the_bit(port: int, tmp_path: Path) -> None:
    """Three processes, as two have but one order to sum in."""
    settings = [*TINY, "trainer=cpu", "trainer.limit_train_batches=16", "data.batch_size=6"]
    codes, _, errors = ended(together(port, tmp_path, *settings, "run_dir=whole", size=3))
    assert (codes, errors) == ([0, 0, 0], "")
    scripts = together(port, tmp_path, *settings, "run_dir=run", size=3)
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[1].send_signal(signal.SIGUSR1)
    codes, _, errors = ended(scripts)
    assert codes == [143, 143, 143]
    assert errors.strip().startswith("interrupted after step")
    assert len(errors.strip().splitlines()) == 1
    assert 0 < content_of(tmp_path / "run")["state"]["step"] < 32
    codes, output, errors = ended(together(port, tmp_path, "resume=run", size=3))
    assert codes == [0, 0, 0], errors
    assert "resumes from step" in output
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    random = content_of(tmp_path / "run")["state"]["random"]
    assert not torch.equal(random[0]["torch"], random[1]["torch"])  # each drops out other activations


def test_memory_is_of_each_process_its_rows(port: int, tmp_path: Path) -> None:
    memory = ["data.order=stream", "model.memory_length=24", f"pos={ENDLESS}"]
    settings = [*WITHOUT_DROPOUT, *memory, "trainer.max_steps=3", "data.batch_size=4", "trainer.max_epochs=null"]
    train_both(port, tmp_path, *settings)
    ours, theirs = (content_of(tmp_path / run)["memory"] for run in ("run", "alone"))
    assert ours["read"].tolist() == theirs["read"].tolist() == [3 * 16] * 4
    torch.testing.assert_close(ours["inputs"], theirs["inputs"], atol=1e-4, rtol=1e-4)
    alone = Script("train", "resume=alone", "trainer.max_steps=5", cwd=tmp_path)
    assert ended(together(port, tmp_path, "resume=run", "trainer.max_steps=5"))[0] == [0, 0]
    assert alone.finish().returncode == 0
    assert_same_curves(tmp_path, "train/loss", "val/loss")
    ours, theirs = (summary_of(tmp_path / run)["val_loss_tokens"] for run in ("run", "alone"))
    assert ours == theirs == 533


def test_another_number_of_processes_resumes(port: int, tmp_path: Path) -> None:
    train_both(port, tmp_path, *WITHOUT_DROPOUT, "trainer.max_epochs=1")
    alone = Script("train", "resume=alone", "trainer.max_epochs=2", cwd=tmp_path)
    resumed = Script("train", "resume=run", "trainer.max_epochs=2", cwd=tmp_path).finish()
    assert resumed.returncode == alone.finish().returncode == 0
    assert resumed.stderr.count("resumes with 1 process instead of 2") == 1
    assert summary_of(tmp_path / "run")["best_val_loss"] == pytest.approx(
        summary_of(tmp_path / "alone")["best_val_loss"], abs=1e-5
    )


def test_fsdp2_divides_the_weights_and_trains_the_same(port: int, tmp_path: Path) -> None:
    settings = [*WITHOUT_DROPOUT, "pos=t5", "trainer.max_epochs=1"]
    train_both(port, tmp_path, *settings, of_two=("trainer.strategy=fsdp2",))
    assert_same_curves(tmp_path, "train/loss", "val/loss", "train/gradient_norm")
    ours, theirs = (load(tmp_path / run).state_dict() for run in ("run", "alone"))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    codes, _, errors = ended(together(port, tmp_path, "resume=run", "trainer.max_epochs=2"))
    assert codes == [0, 0], errors
    assert summary_of(tmp_path / "run")["steps"] == 10


def test_what_is_refused(port: int, tmp_path: Path) -> None:
    settings = [*TINY, "trainer=cpu"]
    for given, problem in (
        ("data.batch_size=3", "error: data.batch_size=3: is of all 2 processes together, so it must be a multiple"),
        ("trainer.devices=1", "error: trainer.devices=1: torchrun has started 2 on each machine, and decides"),
    ):
        codes, output, errors = ended(together(port, tmp_path, *settings, given))
        assert codes == [2, 2]
        lines = errors.splitlines()
        assert len(lines) == 2  # one of each process
        assert all(line.startswith(problem) for line in lines)
        assert output.count("loading") <= 1
    assert not (tmp_path / "runs").exists()


def test_other_settings_are_refused(port: int, tmp_path: Path) -> None:
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    scripts = [
        Script("train", *TINY, "trainer=cpu", f"seed={rank + 1}", cwd=tmp_path, env=common | {"RANK": str(rank)})
        for rank in range(2)
    ]
    codes, _, errors = ended(scripts)
    assert codes == [2, 2]
    problem = "seed=2 in process 1, but seed=1 in process 0; all processes of a run must have the same settings"
    assert errors.splitlines() == [f"error: {problem}"] * 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others(killed: int, port: int, tmp_path: Path) -> None:
    scripts = together(port, tmp_path, *TINY, "trainer=cpu", "trainer.max_epochs=1000", "run_dir=run")
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[killed].send_signal(signal.SIGKILL)
    left = scripts[1 - killed].finish(30)
    assert left.returncode == 1
    (line,) = [line for line in left.stderr.splitlines() if line.startswith("error: ")]  # C++ may add lines of its own
    assert "is gone: killed" in line


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "lightning"])
def test_true_launchers(launcher: str, tmp_path: Path) -> None:
    settings = (*TINY, "trainer.max_epochs=1", "trainer=cpu")

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        devices = ["trainer.devices=2"] if launcher == "lightning" else []
        command = [sys.executable, *(torchrun if launcher == "torchrun" else [])]
        command += [str(REPOSITORY / "scripts" / "train.py"), *arguments, *devices]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    trained = start(*settings)
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.count("loading torch") == trained.stdout.count("best     ") == 1
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(list(folder.rglob("events.out.tfevents.*"))) == 1
    resumed = start(f"resume={folder}", "trainer.max_epochs=2")
    assert resumed.returncode == 0, resumed.stderr
    assert "instead of" not in resumed.stderr
    assert summary_of(folder)["steps"] == 10
    refused = start(*settings, "data.batch_size=3")
    assert refused.returncode != 0
    assert refused.stderr.count("error: data.batch_size=3: is of all 2 processes together") >= 1
    assert list((tmp_path / "runs").iterdir()) == [folder]
