"""One run of several processes: one of them makes the folder, and the others join it, whoever starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from poslab.errors import SettingError
from poslab.runs.folder import is_first_process, new_run_folder, old_run_folder
from runs_to_resume import TINY

VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
    "SLURM_STEP_NUM_TASKS", "POSLAB_RUN_FOLDER",
)  # fmt: skip
# What each launcher sets, and whether the process is the first of all.
ENVIRONMENTS = {
    "no launcher": ("", True),
    "torchrun, first": ("RANK=0 LOCAL_RANK=0 GROUP_RANK=0 WORLD_SIZE=4", True),
    "torchrun, second of the first node": ("RANK=1 LOCAL_RANK=1 GROUP_RANK=0 WORLD_SIZE=4", False),
    "torchrun, first of the second node": ("RANK=2 LOCAL_RANK=0 GROUP_RANK=1 WORLD_SIZE=4", False),
    "torchrun in a SLURM job, nodes in another order": ("RANK=0 LOCAL_RANK=0 SLURM_PROCID=1 WORLD_SIZE=2", True),
    "torchrun in a SLURM job, the other node": ("RANK=1 LOCAL_RANK=0 SLURM_PROCID=0 WORLD_SIZE=2", False),
    "srun, first": ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=4", True),
    "srun, second of the first node": ("SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=4", False),
    "srun, first of the second node": ("SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=4", False),
    "a SLURM job of one task": ("SLURM_PROCID=0 SLURM_LOCALID=0", True),
    "Lightning's second process": ("LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2", False),
    "Lightning's second process in a SLURM shell": ("LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2 SLURM_PROCID=0", False),
    "Lightning's second node": ("NODE_RANK=1", False),
}


@pytest.fixture(params=ENVIRONMENTS)
def is_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Sets an environment; whether it is the first process's."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    variables, first = ENVIRONMENTS[request.param]
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    return first


def test_exactly_rank_0_is_the_first_process(is_first: bool) -> None:
    assert is_first_process() == is_first


def test_the_first_makes_the_folder_and_the_others_join_it(is_first: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_run_folder(str(folder), "t5", 1) as run:
        assert run.path == folder
        assert folder.exists() == is_first
    if not is_first:  # what the first has made is no obstacle
        folder.mkdir()
        (folder / "config.yaml").touch()
        with new_run_folder(str(folder), "t5", 1) as run, old_run_folder(folder) as again:
            assert run.path == again.path == folder
        assert [path.name for path in folder.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("launcher", ["RANK=0 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=2", "SLURM_PROCID=0", "NODE_RANK=1"])
def test_processes_that_others_start_need_a_name(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process alone names its folder itself, also in a SLURM job."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for variable in launcher.split():
        monkeypatch.setenv(*variable.split("="))
    if launcher == "SLURM_PROCID=0":
        with new_run_folder(None, "t5", 1) as run:
            assert run.path.parent == Path("runs")
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    before = list(tmp_path.rglob("*"))
    with pytest.raises(SettingError, match="must be given where torchrun or srun"), new_run_folder(None, "t5", 1):
        pass
    assert list(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    """Two processes that torchrun starts write one run, and go on with it."""
    settings = (*TINY, "trainer.max_epochs=1", "trainer=cpu", "trainer.devices=2", "trainer.strategy=ddp")

    def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launcher, str(REPOSITORY / "scripts" / "train.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    trained = torchrun(*settings, "run_dir=run")
    assert trained.returncode == 0, trained.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["tokens"] == summary["steps"] * 2 * 2 * 16
    resumed = torchrun("resume=run", "trainer.max_epochs=2")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 2 * summary["steps"]
    refused = torchrun(*settings)
    assert refused.returncode != 0
    assert "error: run_dir=null: must be given where torchrun or srun starts several processes" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
