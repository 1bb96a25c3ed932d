"""One run of several processes: it is the run of one process alone, whoever starts them, and ends as one."""

import json
import os
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

from poslab.data.batch_shards import BatchShards, shard_indices
from poslab.data.task import _TrainingBatches
from poslab.errors import SettingError
from poslab.runs.checkpoint import load
from poslab.runs.folder import new_run_folder, old_run_folder
from poslab.runs.place import Place, is_first_process, place
from poslab.signals import Interrupted
from poslab.tasks.flip_flop import FlipFlop

VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_NAME", "POSLAB_RUN_FOLDER",
    "POSLAB_RUN_DATA",
)  # fmt: skip
# What each launcher sets, and which process it is.
ENVIRONMENTS = {
    "no launcher": ("", Place()),
    "torchrun, first": ("RANK=0 LOCAL_RANK=0 GROUP_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", Place("torchrun", 0, 4, 2)),
    "torchrun, second node": (
        "RANK=2 LOCAL_RANK=0 GROUP_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", Place("torchrun", 2, 4, 2)
    ),
    "torchrun in a SLURM job, nodes in another order": (
        "RANK=0 LOCAL_RANK=0 SLURM_PROCID=1 SLURM_NTASKS=2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", Place("torchrun", 0, 2, 1)
    ),
    "by hand": ("RANK=1 WORLD_SIZE=2", Place("torchrun", 1, 2, 2)),
    "srun, first": ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=4", Place("srun", 0, 4, 4)),
    "srun, second node": (
        "SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=4 SLURM_NNODES=2", Place("srun", 2, 4, 2)
    ),
    "srun in a shell of SLURM's": (
        "SLURM_PROCID=1 SLURM_JOB_NAME=interactive SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2", Place("srun", 1, 2, 2)
    ),
    "a shell of SLURM's": ("SLURM_PROCID=0 SLURM_JOB_NAME=interactive SLURM_NTASKS=2", Place()),
    "a SLURM job of one task": ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1", Place()),
    "a step of one task in a larger job": ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", Place()),
    "Lightning's second process": ("LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2", Place(rank=1)),
    "Lightning's second process in a SLURM shell": (
        "LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2 SLURM_PROCID=0", Place(rank=1)
    ),
    "Lightning's second node": ("NODE_RANK=1", Place(rank=1)),
}  # fmt: skip


@pytest.fixture(params=ENVIRONMENTS)
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Sets an environment; which process it is."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    variables, expected = ENVIRONMENTS[request.param]
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    return expected


def test_one_function_knows_the_rank(expected: Place) -> None:
    assert place() == expected
    assert is_first_process() == (expected.rank == 0)


def test_the_first_makes_the_folder_and_the_others_join_it(expected: Place, tmp_path: Path) -> None:
    folder, is_first = tmp_path / "run", expected.rank == 0
    with new_run_folder(str(folder), "t5", 1) as run:
        assert run.path == folder
        assert folder.exists() == is_first
    if not is_first:  # what the first has made is no obstacle
        folder.mkdir()
        (folder / "config.yaml").touch()
        with new_run_folder(str(folder), "t5", 1) as run, old_run_folder(folder) as again:
            assert run.path == again.path == folder
        assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_a_node_that_is_started_by_hand_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NODE_RANK", "1")
    with pytest.raises(SettingError, match="must be given, unless torchrun"), new_run_folder(None, "t5", 1):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_every_validation_batch_is_dealt(world_size: int) -> None:
    for batches in (1, 2, 4, 7, 15):
        hands = [shard_indices(batches, rank, world_size) for rank in range(world_size)]
        assert {batch for hand in hands for batch in hand} == set(range(batches))
        assert len({len(hand) for hand in hands}) == 1  # or they would wait for each other


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_parts_of_a_batch_are_the_batch(rows: int) -> None:
    windows = [(torch.full((5,), i), torch.full((5,), i + 1)) for i in range(9)]
    indices = [7, 2, 5, 0][:rows]
    parts = [BatchShards(windows, rank, 3)[indices] for rank in range(3)]
    counted = [part for part in parts if part.share]
    assert torch.cat([part.tokens for part in counted])[:, 0].tolist() == indices
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert all(len(part.tokens) and part.batch_tokens == rows * 5 for part in parts)


def test_parts_of_a_task_weigh_by_what_is_asked() -> None:
    """In flip_flop, rows ask for different numbers of answers."""
    task = FlipFlop(min_length=8, max_length=8, test_lengths=[8], batch_size=6)
    whole = task.training(1, 4)
    parts = [BatchShards(_TrainingBatches(task, 1), rank, 2, of_batches=True)[4] for rank in range(2)]
    assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
    asked = [int((part.targets != -100).sum()) for part in parts]
    assert [part.share for part in parts] == pytest.approx([n / sum(asked) for n in asked])
    assert asked[0] != asked[1]


@pytest.fixture
def port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


SRUN = {"SLURM_NTASKS": 2, "SLURM_JOB_ID": 77, "SLURM_NODEID": 0}


def together(port: int, folder: Path, *arguments: str, srun: bool = False, size: int = 2) -> list[Script]:
    """As many processes of one run, started as torchrun or srun do."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **(SRUN if srun else {"WORLD_SIZE": size})}
    names = ("SLURM_PROCID", "SLURM_LOCALID") if srun else ("RANK", "LOCAL_RANK")
    places = [common | dict.fromkeys(names, rank) for rank in range(size)]
    return [
        Script("train", *arguments, cwd=folder, env={name: str(value) for name, value in place.items()})
        for place in places
    ]


def ended(scripts: list[Script]) -> tuple[list[int], str, str]:
    """Exit codes, and what all have printed."""
    results = [script.finish(60) for script in scripts]
    codes = [result.returncode for result in results]
    return codes, "".join(result.stdout for result in results), "".join(result.stderr for result in results)


WITHOUT_DROPOUT = [*TINY, "trainer=cpu", "model.dropout=0", "data.batch_size=6", "trainer.limit_val_batches=null"]


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


@pytest.mark.parametrize("srun", [False, True])
def test_two_processes_train_as_one_alone(srun: bool, port: int, tmp_path: Path) -> None:
    """All of the text, whose last batches are not full, and validation windows that two can't share evenly."""
    settings = [*WITHOUT_DROPOUT, "data.batch_size=32", "trainer.limit_train_batches=null", "pos=t5"]
    alone = Script("train", *settings, "run_dir=alone", cwd=tmp_path)
    codes, output, errors = ended(together(port, tmp_path, *settings, srun=srun))
    assert alone.finish().returncode == 0
    assert codes == [0, 0], errors
    assert output.count("best     validation loss") == 1
    (folder,) = (tmp_path / "runs").iterdir()  # one, which the first has named
    ours, theirs = logged(folder), logged(tmp_path / "alone")
    assert ours.keys() == theirs.keys()
    assert len(theirs["train/loss"]) == 2 * 9  # 288 windows
    for name in ("train/loss", "val/loss"):
        assert [step for step, _ in ours[name]] == [step for step, _ in theirs[name]]
        assert [loss for _, loss in ours[name]] == pytest.approx([loss for _, loss in theirs[name]], abs=1e-5)
    ours, theirs = summary_of(folder), summary_of(tmp_path / "alone")
    for name in ("tokens", "steps", "val_loss_tokens", "best_step"):
        assert ours[name] == theirs[name]
    assert ours["val_loss_tokens"] == 533


def test_a_task_on_two_processes(port: int, tmp_path: Path) -> None:
    settings = [*TINY_TASK, "trainer=cpu", "model.dropout=0", "pos=absolute_offset"]  # which draws for each text
    alone = Script("train", *settings, "run_dir=alone", cwd=tmp_path)
    codes, _, errors = ended(together(port, tmp_path, *settings, "run_dir=two"))
    assert alone.finish().returncode == 0
    assert codes == [0, 0], errors
    ours, theirs = logged(tmp_path / "two"), logged(tmp_path / "alone")
    for name in ("train/loss", "val/loss", "val/exact"):
        assert [loss for _, loss in ours[name]] == pytest.approx([loss for _, loss in theirs[name]], abs=1e-5)


def test_a_signal_to_one_saves_all_and_the_run_goes_on_to_the_bit(port: int, tmp_path: Path) -> None:
    """Of three: two have but one order to sum in."""
    settings = [*TINY, "trainer=cpu", "trainer.limit_train_batches=30", "data.batch_size=6"]
    codes, _, errors = ended(together(port, tmp_path, *settings, "run_dir=whole", size=3))
    assert (codes, errors) == ([0, 0, 0], "")
    scripts = together(port, tmp_path, *settings, "run_dir=run", size=3)
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[1].send_signal(signal.SIGUSR1)
    codes, _, errors = ended(scripts)
    assert codes == [143, 143, 143]
    assert errors.strip().startswith("interrupted after step")
    assert len(errors.strip().splitlines()) == 1
    assert 0 < content_of(tmp_path / "run")["state"]["step"] < 60
    codes, output, errors = ended(together(port, tmp_path, "resume=run", size=3))
    assert codes == [0, 0, 0], errors
    assert "goes on from step" in output
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    random = content_of(tmp_path / "run")["state"]["random"]
    assert not torch.equal(random[0]["torch"], random[1]["torch"])  # each drops out other activations


def test_memory_is_of_each_process_its_rows(port: int, tmp_path: Path) -> None:
    """Saved within an epoch, as the memory of one process is that would read all rows; two go on with it."""
    memory = ["data.order=stream", "model.memory_length=24", f"pos={ENDLESS}"]
    settings = [*WITHOUT_DROPOUT, *memory, "trainer.max_steps=3", "data.batch_size=4", "trainer.max_epochs=null"]
    alone = Script("train", *settings, "run_dir=alone", cwd=tmp_path)
    codes, _, errors = ended(together(port, tmp_path, *settings, "run_dir=run"))
    assert alone.finish().returncode == 0
    assert codes == [0, 0], errors
    ours, theirs = (content_of(tmp_path / run)["memory"] for run in ("run", "alone"))
    assert ours["read"].tolist() == theirs["read"].tolist() == [3 * 16] * 4
    torch.testing.assert_close(ours["inputs"], theirs["inputs"], atol=1e-4, rtol=1e-4)
    alone = Script("train", "resume=alone", "trainer.max_steps=5", cwd=tmp_path)
    assert ended(together(port, tmp_path, "resume=run", "trainer.max_steps=5"))[0] == [0, 0]
    assert alone.finish().returncode == 0
    for name in ("train/loss", "val/loss"):
        ours, theirs = ([value for _, value in logged(tmp_path / run)[name]] for run in ("run", "alone"))
        assert ours == pytest.approx(theirs, abs=1e-5)
    ours, theirs = (summary_of(tmp_path / run)["val_loss_tokens"] for run in ("run", "alone"))
    assert ours == theirs == 533


def test_another_number_of_processes_goes_on(port: int, tmp_path: Path) -> None:
    settings = [*WITHOUT_DROPOUT, "trainer.max_epochs=1"]
    alone = Script("train", *settings, "run_dir=alone", cwd=tmp_path)
    assert ended(together(port, tmp_path, *settings, "run_dir=run"))[0] == [0, 0]
    assert alone.finish().returncode == 0
    alone = Script("train", "resume=alone", "trainer.max_epochs=2", cwd=tmp_path)
    resumed = Script("train", "resume=run", "trainer.max_epochs=2", cwd=tmp_path).finish()
    assert resumed.returncode == alone.finish().returncode == 0
    assert resumed.stderr.count("goes on with 1 process instead of 2") == 1
    assert summary_of(tmp_path / "run")["best_val_loss"] == pytest.approx(
        summary_of(tmp_path / "alone")["best_val_loss"], abs=1e-5
    )


def test_fsdp2_divides_the_weights_and_trains_the_same(port: int, tmp_path: Path) -> None:
    settings = [*WITHOUT_DROPOUT, "pos=t5", "trainer.max_epochs=1"]
    alone = Script("train", *settings, "run_dir=alone", cwd=tmp_path)
    codes, _, errors = ended(together(port, tmp_path, *settings, "trainer.strategy=fsdp2", "run_dir=run"))
    assert codes == [0, 0], errors
    assert alone.finish().returncode == 0
    for name in ("train/loss", "val/loss", "train/gradient_norm"):
        ours, theirs = ([value for _, value in logged(tmp_path / run)[name]] for run in ("run", "alone"))
        assert ours == pytest.approx(theirs, abs=1e-5)
    ours, theirs = (load(tmp_path / run).state_dict() for run in ("run", "alone"))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    codes, _, errors = ended(together(port, tmp_path, "resume=run", "trainer.max_epochs=2"))
    assert codes == [0, 0], errors
    assert summary_of(tmp_path / "run")["steps"] == 10
    refused = Script("train", *settings, "trainer.strategy=fsdp2", cwd=tmp_path).finish()
    assert (refused.returncode, refused.stderr.count("trainer.strategy=fsdp2: needs several processes")) == (2, 1)


def test_what_is_refused_is_said_once(port: int, tmp_path: Path) -> None:
    settings = [*TINY, "trainer=cpu"]
    for given, problem in (
        (
            "data.batch_size=3",
            "error: data.batch_size=3: is of all 2 processes together, so it must be a multiple",
        ),
        ("model.embed_dim=0", "error: model.embed_dim=0: must be"),
        ("trainer.devices=1", "error: trainer.devices=1: torchrun has started 2 on each machine, and decides"),
    ):
        codes, output, errors = ended(together(port, tmp_path, *settings, given))
        assert codes == [2, 2]
        assert errors.startswith(problem)
        assert len(errors.splitlines()) == 1
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
    told = "seed=2 in process 1, but seed=1 in process 0; all processes of a run must have the same settings"
    assert errors == f"error: {told}\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others(killed: int, port: int, tmp_path: Path) -> None:
    scripts = together(port, tmp_path, *TINY, "trainer=cpu", "trainer.max_epochs=1000", "run_dir=run")
    scripts[0].wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    scripts[killed].send_signal(signal.SIGKILL)
    left = scripts[1 - killed].finish(30)
    assert left.returncode == 1
    told = [line for line in left.stderr.splitlines() if line.startswith("error: ")]  # C++ may add words of its own
    assert len(told) == 1
    assert "is gone: killed" in told[0]


def test_who_waits_for_nobody_says_so(port: int, tmp_path: Path) -> None:
    """A batch script without srun is one task of several."""
    code = (
        "import poslab.runs.processes as p\n"
        "p.ARRIVAL_S = 1\n"
        "try:\n    p.processes.meet(p.place(), 1)\n"
        "except p.UserError as error:\n    raise SystemExit(p.end(f'error: {error}', 2))"
    )
    environment = os.environ | {name: str(value) for name, value in SRUN.items()}
    environment |= {"SLURM_PROCID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    script = [sys.executable, "-c", code.replace("p.ARRIVAL_S", "p._LEAVING_S = p.ARRIVAL_S")]
    result = subprocess.run(script, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert result.returncode == 2
    told = "of 2 processes, 1 did not come within 1 seconds; in a batch script, start it with srun"
    assert result.stderr == f"error: {told}\n"


def test_exit_codes_of_signals() -> None:
    assert Interrupted(signal.SIGINT).exit_code == 130
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        assert Interrupted(number).exit_code == 143


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "lightning"])
def test_true_launchers(launcher: str, tmp_path: Path) -> None:
    """Two processes that torchrun or Lightning starts write one run, and go on with it."""
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
    assert refused.stderr.count("error: data.batch_size=3: is of all 2 processes together") == 1
    assert list((tmp_path / "runs").iterdir()) == [folder]
