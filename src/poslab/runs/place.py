"""Which of the processes of a run this is, by the variables that torchrun, srun and Lightning set. Loads no torch."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass

_INTERACTIVE = ("bash", "interactive")  # names of SLURM jobs that are a shell


@dataclass(frozen=True)
class Place:
    """Which of the processes of a run this is. launcher: "torchrun" or "srun"; "" where it was started by itself, or by
    Lightning, which then brings the others into being: size is 1.
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine

    @property
    def nodes(self) -> int:
        return self.size // self.local_size


def place() -> Place:
    """As the launcher's variables say. RANK outranks those of a SLURM job that torchrun is started in."""
    if "RANK" in os.environ:
        size = whole_number("WORLD_SIZE")
        return Place("torchrun", whole_number("RANK", default=0), size, whole_number("LOCAL_WORLD_SIZE", default=size))
    if "LOCAL_RANK" in os.environ or "NODE_RANK" in os.environ:  # Lightning's, whose local size nothing says
        return Place(rank=whole_number("LOCAL_RANK", default=0) + whole_number("NODE_RANK", default=0))
    size = whole_number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    in_step = "SLURM_STEP_NUM_TASKS" in os.environ or os.environ.get("SLURM_JOB_NAME") not in _INTERACTIVE
    if "SLURM_PROCID" not in os.environ or size == 1 or not in_step:
        return Place()
    nodes = whole_number("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    return Place("srun", whole_number("SLURM_PROCID"), size, size // nodes if size % nodes == 0 else 1)


def is_first_process() -> bool:
    """Whether this is the one process of a run that writes."""
    return place().rank == 0


def prepare_process() -> None:
    """Leaves speech to the first process, errors excepted; before torch is loaded."""
    # Or C++ would print stacks when a connection ends, and that DDP looks for unused parameters. What operations warn
    # of goes through Python.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not is_first_process():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        warnings.simplefilter("ignore")


def started_by_lightning() -> bool:
    """Whether this is a further process of a run, started by its first one."""
    here = place()
    return not here.launcher and here.rank > 0


def whole_number(*names: str, default: int = 1) -> int:
    """The first of these variables that is a whole number."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), default)
