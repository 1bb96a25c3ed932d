"""One run of several processes, whoever starts them: rank zero writes one folder, a signal saves it, and it resumes."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from common import ENDLESS, REPOSITORY
from processes import Script
from runs_to_resume import TINY, TINY_TASK, content_of, logged


@pytest.fixture
def port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
CPU = [*TINY, "trainer=cpu"]
SRUN = {
    "SLURM_NTASKS": "2",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_JOB_ID": "77",
}


def together(port: int, folder: Path, *arguments: str, srun: bool = False) -> list[Script]:
    """Start the two processes of one run as torchrun or srun do."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **(SRUN if srun else TORCHRUN)}
    names = ("SLURM_PROCID", "SLURM_LOCALID") if srun else ("RANK", "LOCAL_RANK")
    environments = [
        common | dict.fromkeys(names, str(rank)) | {names[-1]: "0" if srun else str(rank)} for rank in (0, 1)
    ]
    return [Script("train", *arguments, cwd=folder, env=env) for env in environments]


def ended(scripts: list[Script]) -> tuple[list[int], str, str]:
    """Exit codes, and what all have printed."""
    results = [script.finish(60) for script in scripts]
    codes = [result.returncode for result in results]
    return codes, "".join(result.stdout for result in results), "".join(result.stderr for result in results)


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def test_two_processes_share_the_data(port: int, tmp_path: Path) -> None:
    """Each takes every other window: together they take the steps of one process with twice the batch."""
    text = [*CPU, "model.dropout=0", "trainer.limit_train_batches=null", "trainer.limit_val_batches=null", "pos=t5"]
    alone = Script("train", *text, "data.batch_size=32", "run_dir=alone", cwd=tmp_path)
    codes, output, errors = ended(together(port, tmp_path, *text, "data.batch_size=16"))
    assert codes == [0, 0], errors
    assert output.count("best     validation loss") == output.count("each of 2 processes") == 1
    assert alone.finish().returncode == 0
    (run,) = (tmp_path / "runs").iterdir()  # rank zero has named it
    ours, theirs = logged(run), logged(tmp_path / "alone")
    assert len(ours["train/loss"]) == 2 * 9  # 288 windows
    assert ours.keys() == theirs.keys()
    assert [value for _, value in ours["eval/loss"]] == pytest.approx(
        [value for _, value in theirs["eval/loss"]], abs=1e-5
    )
    ours, theirs = summary_of(run), summary_of(tmp_path / "alone")
    assert ours["val_loss_tokens"] == 533
    assert (ours["processes"], theirs["processes"]) == (2, 1)
    for name in ("tokens", "steps", "val_loss_tokens", "best_step"):
        assert ours[name] == theirs[name]


@pytest.mark.parametrize(
    "settings",
    [
        [*TINY_TASK, "trainer=cpu", "pos=absolute_offset"],
        [*CPU, "data.order=stream", "model.memory_length=24", "model.retrieval.layer=1", f"pos={ENDLESS}"],
    ],
    ids=["a task", "memory"],
)
def test_other_data_by_srun(settings: list[str], port: int, tmp_path: Path) -> None:
    codes, _, errors = ended(together(port, tmp_path, *settings, "run_dir=run", srun=True))
    assert (codes, errors.count("Traceback")) == ([0, 0], 0), errors
    codes, output, errors = ended(
        together(port, tmp_path, "resume=run", "trainer.max_steps=12", "trainer.max_epochs=3", srun=True)
    )
    assert codes == [0, 0], errors
    assert "resumes from step 10" in output
    assert summary_of(tmp_path / "run")["steps"] == 12


def test_a_signal_to_one_saves_the_run_which_resumes(port: int, tmp_path: Path) -> None:
    settings = [*CPU, "trainer.limit_train_batches=50"]
    scripts = together(port, tmp_path, *settings, "run_dir=run")
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[1].send_signal(signal.SIGUSR1)
    codes, _, errors = ended(scripts)
    assert codes[0] == 143
    (line,) = [line for line in errors.splitlines() if line]
    assert line.startswith("interrupted after step")
    assert 0 < content_of(tmp_path / "run")["state"]["step"] < 100
    alone = Script("train", "resume=run", cwd=tmp_path).finish()
    assert alone.returncode == 2
    assert "2 processes share its data" in alone.stderr
    codes, output, errors = ended(together(port, tmp_path, "resume=run"))
    assert codes == [0, 0], errors
    assert "resumes from step" in output
    assert summary_of(tmp_path / "run")["steps"] == 100
    assert [step for step, _ in logged(tmp_path / "run")["train/loss"]] == list(range(100))


def test_what_is_refused_is_one_line(port: int, tmp_path: Path) -> None:
    for given, problem in (("model.num_heads=3", "model.num_heads=3: must divide"), ("trainer.devices=1", "devices=1")):
        codes, _, errors = ended(together(port, tmp_path, *CPU, given))
        assert codes[0] == 2
        (line,) = errors.splitlines()
        assert problem in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other(killed: int, port: int, tmp_path: Path) -> None:
    scripts = together(port, tmp_path, *CPU, "trainer.max_epochs=1000", "run_dir=run")
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[killed].send_signal(signal.SIGKILL)
    left = scripts[1 - killed].finish(30)
    assert left.returncode != 0 or killed == 0
    if killed == 1:
        assert "is gone: killed" in left.stderr


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "lightning"])
def test_true_launchers(launcher: str, tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(torchrun if launcher == "torchrun" else [])]
        command += [str(REPOSITORY / "scripts" / "train.py"), *arguments]
        command += [] if launcher == "torchrun" else ["trainer.devices=2"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    trained = start(*CPU, "trainer.max_epochs=1")
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.count("loading torch") == trained.stdout.count("best     ") == 1
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(list(folder.rglob("events.out.tfevents.*"))) == 1
    resumed = start(f"resume={folder}", "trainer.max_epochs=2")
    assert resumed.returncode == 0, resumed.stderr
    assert summary_of(folder)["steps"] == 10
    assert start(*CPU, "model.num_heads=3").stderr.count("error: model.num_heads=3") == 1
    assert list((tmp_path / "runs").iterdir()) == [folder]
