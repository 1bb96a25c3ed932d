"""Which process of a run this is, and how many its launcher has started, by the variables that the launcher sets."""

import pytest
from refusals import refused

from poslab.errors import UserError
from poslab.processes import launched, launcher_plugins, rank, require_launcher

TORCHRUN = "TORCHELASTIC_RUN_ID=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2"
SRUN = "SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 SLURM_NNODES=2 SLURM_JOB_NAME=train"
CASES = {
    "none": ("", 0, {}, []),
    "Lightning's second": ("LOCAL_RANK=1", 1, {}, []),
    "Lightning's first on a second machine": ("NODE_RANK=1", 1, {}, []),
    "torchrun": (f"RANK=2 LOCAL_RANK=0 {TORCHRUN}", 2, {"devices": 2, "num_nodes": 2}, []),
    "torchrun within srun": (f"RANK=0 {TORCHRUN} SLURM_PROCID=1 {SRUN}", 0, {"devices": 2, "num_nodes": 2}, []),
    "srun": (f"SLURM_PROCID=3 {SRUN}", 3, {"devices": 2, "num_nodes": 2}, ["SLURMEnvironment"]),
    "one task": ("SLURM_PROCID=0 SLURM_NTASKS=1", 0, {}, ["LightningEnvironment"]),
    "a shell of several tasks": ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NAME=bash", 0, {}, ["LightningEnvironment"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_launcher_tells_by_its_variables(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, own_rank, started, plugins = CASES[case]
    for setting in variables.split():
        monkeypatch.setenv(*setting.split("="))
    assert (rank(), launched("auto"), launched(2) if started else {}) == (own_rank, started, started)
    assert [type(plugin).__name__ for plugin in launcher_plugins()] == plugins
    if started:
        with refused("trainer.devices", "3", "2"):
            launched(3)


LEFT_BEHIND = {
    "RANK=1 WORLD_SIZE=2": "RANK=1: left behind by a launcher, as there is no TORCHELASTIC_RUN_ID; unset RANK",
    "LOCAL_RANK=1": "LOCAL_RANK=1: left behind by a launcher, as there is no WORLD_SIZE; unset LOCAL_RANK",
    "NODE_RANK=1": "NODE_RANK=1: left behind by a launcher, as there is no MASTER_ADDR; unset NODE_RANK",
    "NODE_RANK=abc": "NODE_RANK=abc: left behind by a launcher, which is no number; unset NODE_RANK",
    "LOCAL_RANK=": "LOCAL_RANK=: left behind by a launcher, which is no number; unset LOCAL_RANK",
    "TORCHELASTIC_RUN_ID=x": "TORCHELASTIC_RUN_ID=x: left behind by a launcher, as there is no RANK; unset TORCH",
    "SLURM_NTASKS=abc": "SLURM_NTASKS=abc: left behind by a launcher, which is no number; unset SLURM_NTASKS",
    "SLURM_PROCID=3": "SLURM_PROCID=3: left behind by a launcher, as there is no SLURM_NTASKS; unset SLURM_PROCID",
    "SLURM_PROCID=3 SLURM_NTASKS=1": "SLURM_PROCID=3: left behind by a launcher, as SLURM_NTASKS=1; unset SLURM_PROCID",
}
COMPLETE = (
    "",
    "WORLD_SIZE=4",
    "RANK=0 WORLD_SIZE=1 MASTER_ADDR=x MASTER_PORT=1",  # of Kubeflow, for a single process
    "LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=5",  # of Lightning
    "NODE_RANK=1 MASTER_ADDR=first MASTER_PORT=5",
    f"RANK=2 LOCAL_RANK=1 {TORCHRUN} MASTER_ADDR=x MASTER_PORT=5",
    f"SLURM_PROCID=3 {SRUN}",
    "SLURM_PROCID=0 SLURM_NTASKS=1",
)


@pytest.mark.parametrize("variables", [*LEFT_BEHIND, *COMPLETE])
def test_what_a_launcher_has_left_behind_is_refused(variables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in variables.split():
        monkeypatch.setenv(*setting.split("="))
    if variables in COMPLETE:
        require_launcher()
        return
    with pytest.raises(UserError) as refusal:
        require_launcher()
    assert str(refusal.value).startswith(LEFT_BEHIND[variables])
    assert rank() == 0  # so that the line is printed
