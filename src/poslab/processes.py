"""Which of a run's processes this is: Lightning starts them, or finds them started by torchrun or srun.

Rank zero prints and writes. Before there is a trainer, which knows, the environment tells.
"""

import os
import sys
import warnings
from typing import Any, NoReturn

from poslab.errors import SettingError, UserError

_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # of torchrun, Lightning and srun, in the order that Lightning has


# Variables of launchers, each with what stands beside it wherever one has set it; numbers above 0 all but the first.
_BESIDE = {
    "TORCHELASTIC_RUN_ID": ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    "RANK": ("TORCHELASTIC_RUN_ID",),
    "LOCAL_RANK": ("WORLD_SIZE", "MASTER_ADDR"),
    "NODE_RANK": ("MASTER_ADDR",),
    "SLURM_PROCID": ("SLURM_NTASKS",),
}
_NUMBERS = (*[*_BESIDE][1:], "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES")


def require_launcher() -> None:
    """Raise UserError for variables that a launcher has left behind: a process that took itself for another than the
    first would train, and neither print nor write."""
    for name in _NUMBERS:
        if not os.environ.get(name, "0").isdecimal():
            _left_behind(name, "which is no number")
    for name, beside in _BESIDE.items():
        missing = [other for other in beside if other not in os.environ]
        if os.environ.get(name, "0") != "0" and missing:
            _left_behind(name, f"as there is no {missing[0]}")
    if os.environ.get("SLURM_PROCID", "0") != "0" and os.environ["SLURM_NTASKS"] == "1":
        _left_behind("SLURM_PROCID", "as SLURM_NTASKS=1")


def _left_behind(name: str, why: str) -> NoReturn:
    value = os.environ[name]
    for variable in (*_VARIABLES, "NODE_RANK"):
        os.environ.pop(variable, None)  # or the line would be left to the first process
    raise UserError(f"{name}={value}: left behind by a launcher, {why}; unset {name}")


def rank() -> int:
    """Return the number of this process among those of its run, or of its machine where Lightning has started them."""
    launched_rank = next((int(os.environ[name]) for name in _VARIABLES if os.environ.get(name, "").isdecimal()), 0)
    return launched_rank or int(os.environ.get("NODE_RANK", 0))


def quiet_other_processes() -> None:
    """Leave the screen to rank zero, errors excepted. Call before torch is loaded."""
    # torch's C++ would print a stack when a connection ends.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if rank():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        warnings.simplefilter("ignore")


def launched(devices: object) -> dict[str, int]:
    """Return devices of each machine and machines, by the names of Lightning's settings, where torchrun or srun has
    started the processes: Lightning would take one CPU. {} where Lightning starts them.

    Raises SettingError where the setting `devices` names others.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        by, local, size = "torchrun", int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    elif _by_srun():
        by, size = "srun", int(os.environ["SLURM_NTASKS"])
        local = size // int(os.environ.get("SLURM_NNODES", 1))
    else:
        return {}
    if str(devices) not in ("auto", "-1", str(local)):
        raise SettingError("trainer.devices", devices, f"{by} has started {local} on each machine, and decides")
    return {"devices": local, "num_nodes": size // local}


def launcher_plugins() -> list[Any]:
    """Return Lightning's description of SLURM, where it would guess another."""
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

    if "TORCHELASTIC_RUN_ID" in os.environ or "SLURM_NTASKS" not in os.environ:
        return []
    # Whoever submits the job requeues it. A job of one task may start processes as on any machine.
    return [SLURMEnvironment(auto_requeue=False) if _by_srun() else LightningEnvironment()]


def _by_srun() -> bool:
    """Return whether this is one of several tasks, and no shell in which something else is started."""
    a_shell = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", 1)) > 1 and not a_shell
