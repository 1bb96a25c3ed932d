"""Several processes of one run: which one this is, and what they exchange beside the training.

torchrun and srun start all processes; they join one process group of torch.distributed before anything is prepared,
and Lightning trains with that. Lightning starts the further processes of `trainer.devices=2` itself, once the first one
has prepared everything: they run its command line again, and know its run folder from the environment.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poslab.errors import RunStopped, UserError, as_typed, first_line

if TYPE_CHECKING:
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

_INTERACTIVE = ("bash", "interactive")  # names of SLURM jobs that are a shell
_FOLDER = "POSLAB_RUN_FOLDER"  # tells the processes that Lightning starts where the run is
_PATIENCE = timedelta(days=7)  # for one process that tokenises a corpus while the others wait
_control: Any = None  # a process group of that patience, for what is exchanged before the training


@dataclass(frozen=True)
class Launch:
    """Rank and numbers of processes, as the launcher says.

    launcher: "torchrun" or "srun"; "" for a process that was started by itself, or by Lightning (then size is 1).
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine

    @property
    def nodes(self) -> int:
        return self.size // self.local_size


def launch() -> Launch:
    """Read the launcher's variables. RANK outranks those of a SLURM job that torchrun is started in."""
    if "RANK" in os.environ:
        size = _number("WORLD_SIZE")
        return Launch("torchrun", _number("RANK", default=0), size, _number("LOCAL_WORLD_SIZE", default=size))
    if "LOCAL_RANK" in os.environ or "NODE_RANK" in os.environ:  # Lightning's, whose local size nothing says
        return Launch(rank=_number("LOCAL_RANK", default=0) + _number("NODE_RANK", default=0))
    size = _number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    in_step = "SLURM_STEP_NUM_TASKS" in os.environ or os.environ.get("SLURM_JOB_NAME") not in _INTERACTIVE
    if "SLURM_PROCID" not in os.environ or size == 1 or not in_step:
        return Launch()
    nodes = _number("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    return Launch("srun", _number("SLURM_PROCID"), size, size // nodes if size % nodes == 0 else 1)


def _number(*names: str, default: int = 1) -> int:
    """Return the first of these variables that is a whole number."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), default)


def is_first_process() -> bool:
    """Return whether this is rank 0, the process that writes and prints."""
    return launch().rank == 0


def started_by_lightning() -> bool:
    """Return whether this is a further process of a run, started by its first one."""
    here = launch()
    return not here.launcher and here.rank > 0


def cluster_environment() -> list[ClusterEnvironment]:
    """Return Lightning's description of the launcher, where Lightning would guess another, as a list of plugins."""
    here = launch()
    if not here.launcher and "SLURM_NTASKS" not in os.environ:
        return []
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    if not here.launcher:
        return [LightningEnvironment()]
    local_rank, node = here.rank % here.local_size, here.rank // here.local_size
    make: Callable[[], ClusterEnvironment]
    if here.launcher == "torchrun":
        variables, make = {"LOCAL_RANK": local_rank, "GROUP_RANK": node}, TorchElasticEnvironment
    else:
        sizes = {"SLURM_NTASKS": here.size, "SLURM_NTASKS_PER_NODE": here.local_size, "SLURM_NNODES": here.nodes}
        # Lightning's port is that of the job, of which several steps may run side by side.
        port = 15000 + (_number("SLURM_JOB_ID", default=0) + 101 * _number("SLURM_STEP_ID", default=0)) % 10000
        variables = sizes | {"SLURM_LOCALID": local_rank, "SLURM_NODEID": node, "MASTER_PORT": port}
        make = partial(SLURMEnvironment, auto_requeue=False)
    for name, value in variables.items():  # which Lightning needs even where the launcher sets fewer
        os.environ.setdefault(name, str(value))
    return [make()]


def quiet_other_processes() -> None:
    """Leave the screen to rank 0, errors excepted. Call before torch is loaded."""
    # Or C++ would print stacks when a connection ends, and that DDP looks for unused parameters. What operations warn
    # of goes through Python.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not is_first_process():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        warnings.simplefilter("ignore")


def init() -> None:
    """Join the process group of torchrun or srun. Raises UserError where the processes don't find each other."""
    global _control
    here = launch()
    if here.size == 1 or is_initialized():
        return
    (environment,) = cluster_environment()
    os.environ["MASTER_ADDR"] = environment.main_address
    os.environ["MASTER_PORT"] = str(environment.main_port)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        torch.distributed.init_process_group(backend, rank=here.rank, world_size=here.size)
        _control = torch.distributed.new_group(backend="gloo", timeout=_PATIENCE)
    except RuntimeError as error:
        advice = "; in a batch script, start it with srun" if here.launcher == "srun" else ""
        reason = first_line(error)
        raise UserError(f"the {here.size} processes of the run don't find each other: {reason}{advice}") from error


def close() -> None:
    """Leave the process group, if this process is in one."""
    global _control
    _control = None
    if is_initialized():
        torch.distributed.destroy_process_group()


def is_initialized() -> bool:
    """Return whether this process is in a process group."""
    if sys.modules.get("torch") is None:  # not loaded yet
        return False
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def barrier() -> None:
    """Wait until all processes of torchrun or srun are here."""
    _gathered(None)


@contextmanager
def first_process_first() -> Iterator[None]:
    """Run the block in rank 0 before the other processes: it fills the cache that they read."""
    if not is_first_process():
        barrier()
    yield
    if is_first_process():
        barrier()


def check_same(settings: Mapping[str, Any]) -> None:
    """Raise UserError, in all processes and naming one setting, where they have other settings than rank 0."""
    first, *others = _gathered({name: as_typed(value) for name, value in settings.items()})
    for rank, own in enumerate(others, start=1):
        for name in first | own:
            if own.get(name) != first.get(name):
                here, there = (f"{name}={given.get(name)}" for given in (own, first))
                problem = f"but {there} in process 0; all processes of a run must have the same settings"
                raise UserError(f"{here} in process {rank}, {problem}")


def broadcast_folder(folder: str | None) -> str | None:
    """Return the run folder of rank 0 in all processes; None where this one can't know it."""
    if started_by_lightning():
        return os.environ.get(_FOLDER)
    folder = _gathered(folder)[0]
    if folder is not None:
        os.environ[_FOLDER] = folder
    return folder


def _gathered(value: Any) -> list[Any]:
    """Return the values of all processes of torchrun or srun, by rank; [value] where there is only one."""
    if _control is None:
        return [value]
    try:
        return of_all_processes(value, _control)
    except RuntimeError as error:
        raise RunStopped("another process of the run has ended") from error


# In training, where processes that Lightning has started are in the group, too.


def of_all_processes(value: Any, group: Any = None) -> list[Any]:
    """Return the value of each training process, by rank, in all of them."""
    if not is_initialized():
        return [value]
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value, group)
    return values


def summed(value: Tensor) -> Tensor:
    """Return the sum of the tensors that the training processes have."""
    total = value.clone()
    torch.distributed.all_reduce(total)
    return total


def largest(number: int, device: torch.device) -> int:
    """Return the largest of the numbers that the training processes have."""
    if not is_initialized():
        return number
    highest = torch.tensor(number, device=device)
    torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX)
    return int(highest)


def is_connection_error(error: Exception) -> bool:
    """Return whether a process could not reach another one. gloo has no error class of its own for that."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
