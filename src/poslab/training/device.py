"""Where to compute, and in what."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, distributed

# What computes in bfloat16, by torch's name of the instructions, the fastest first.
_BFLOAT16_UNITS = {
    "amx_bf16": "matrix units (AMX)",
    "avx512_bf16": "vector units (AVX-512)",
    "bf16": "vector units (Arm)",
}


def bfloat16_units() -> str | None:
    """What of this processor computes in bfloat16; None: nothing does, and in software it is slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return next((unit for name, unit in _BFLOAT16_UNITS.items() if capabilities.get(name)), None)


@cache
def compiler_problem(device: str) -> str | None:
    """Why torch.compile makes no code for cpu or cuda on this machine; None: it does, as a trial has shown."""
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except (RuntimeError, OSError) as error:
        # Above the reason torch may say which backend raised it, and below how to learn more.
        return next(line for line in str(error).splitlines() if not line.startswith("backend="))
    return None


def of_all_devices(value: Any) -> list[Any]:
    """The value that each training process has, the same list in all of them; [value] where there is only one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def summed(value: Tensor) -> Tensor:
    """The sum of the values that the training processes have."""
    total = value.clone()
    distributed.all_reduce(total)
    return total


def largest(number: int, device: torch.device) -> int:
    """The largest of the numbers that the training processes have; `number` where there is only one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return number
    highest = torch.tensor(number, device=device)
    distributed.all_reduce(highest, distributed.ReduceOp.MAX)
    return int(highest)


def is_of_connection(error: Exception) -> bool:
    """Whether a process could not reach another one. gloo has no error of its own for that."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
