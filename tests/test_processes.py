"""Which process of a run this is, and how many its launcher has started, by the variables that the launcher sets."""

import pytest

from poslab.errors import SettingError
from poslab.processes import launched, launcher_plugins, rank

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
        with pytest.raises(SettingError, match=r"^trainer\.devices=3: (torchrun|srun) has started 2 on each machine"):
            launched(3)
