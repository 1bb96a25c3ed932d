"""Launchers' variables, and the folder that the processes of one run share."""

from pathlib import Path

import pytest
import torch

from poslab import distributed
from poslab.distributed import Launch, is_first_process, launch
from poslab.errors import SettingError, UserError
from poslab.runs.folder import new_run_folder, old_run_folder

VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_NAME", "POSLAB_RUN_FOLDER",
)  # fmt: skip
# What each launcher sets, and which process it is.
ENVIRONMENTS = {
    "no launcher": ("", Launch()),
    "torchrun, first": (
        "RANK=0 LOCAL_RANK=0 GROUP_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", Launch("torchrun", 0, 4, 2)
    ),
    "torchrun, second node": (
        "RANK=2 LOCAL_RANK=0 GROUP_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", Launch("torchrun", 2, 4, 2)
    ),
    "torchrun in a SLURM job, nodes in another order": (
        "RANK=0 LOCAL_RANK=0 SLURM_PROCID=1 SLURM_NTASKS=2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", Launch("torchrun", 0, 2, 1)
    ),
    "by hand": ("RANK=1 WORLD_SIZE=2", Launch("torchrun", 1, 2, 2)),
    "srun, first": ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=4", Launch("srun", 0, 4, 4)),
    "srun, second node": (
        "SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=4 SLURM_NNODES=2", Launch("srun", 2, 4, 2)
    ),
    "a shell of SLURM's": ("SLURM_PROCID=0 SLURM_JOB_NAME=interactive SLURM_NTASKS=2", Launch()),
    "a SLURM job of one task": ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1", Launch()),
    "a step of one task in a larger job": ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", Launch()),
    "Lightning's second process": ("LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2", Launch(rank=1)),
    "Lightning's second node": ("NODE_RANK=1", Launch(rank=1)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=ENVIRONMENTS)
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Sets an environment; which process it is."""
    variables, expected = ENVIRONMENTS[request.param]
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    return expected


def test_one_function_knows_the_rank(expected: Launch) -> None:
    assert launch() == expected
    assert is_first_process() == (expected.rank == 0)


def test_the_first_makes_the_folder_and_the_others_join_it(expected: Launch, tmp_path: Path) -> None:
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
    monkeypatch.setenv("NODE_RANK", "1")
    with pytest.raises(SettingError, match="must be given, unless torchrun"), new_run_folder(None, "t5", 1):
        pass
    assert not list(tmp_path.iterdir())


def test_processes_that_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    def lonely(*arguments: object, **named: object) -> None:
        raise torch.distributed.DistStoreError("timed out after 1800 seconds\nmore")

    for name in ("MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS_PER_NODE"):
        monkeypatch.setenv(name, "1")  # so that what init sets goes with the test
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setattr(torch.distributed, "init_process_group", lonely)
    with pytest.raises(UserError, match=r"^the 2 processes .*: timed out after 1800 seconds; in a batch script, start"):
        distributed.init()
