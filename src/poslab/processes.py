"""Which of a run's processes this is: Lightning starts them, or finds them started by torchrun or srun.

Rank zero prints and writes. Before there is a trainer, which knows, the environment tells.
"""

import os
import sys
import warnings

_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # of torchrun, Lightning and srun, in the order that Lightning has


def rank() -> int:
    """Return the number of this process among those of its run."""
    return next((int(os.environ[name]) for name in _VARIABLES if os.environ.get(name, "").isdecimal()), 0)


def quiet_other_processes() -> None:
    """Leave the screen to rank zero, errors excepted. Call before torch is loaded."""
    # torch's C++ would print a stack when a connection ends.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if rank():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        warnings.simplefilter("ignore")
