"""Threads, memory, bfloat16 and the compiler of the machine that trains."""

import ctypes
import os
from functools import cache

import torch

from poslab.config.schema import ModelConfig, TrainerConfig
from poslab.runs.checkpoint import choose_device

# Instructions that compute in bfloat16, by torch's names, the fastest first.
_BFLOAT16_UNITS = {
    "amx_bf16": "matrix units (AMX)",
    "avx512_bf16": "vector units (AVX-512)",
    "bf16": "vector units (Arm)",
}
# Numbers of mallopt's parameters, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def bfloat16_units() -> str | None:
    """Name what of this processor computes in bfloat16; None: nothing does, and software is slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return next((unit for name, unit in _BFLOAT16_UNITS.items() if capabilities.get(name)), None)


def slow_precision(settings: TrainerConfig, device: torch.device) -> list[str]:
    """Warn where bfloat16 works, but only in software."""
    if device.type == "cpu" and settings.precision in ("bf16-mixed", "bf16-true") and not bfloat16_units():
        return [f"trainer.precision={settings.precision}: this CPU has no bfloat16 arithmetic; 32-true is faster"]
    return []


@cache
def compiler_problem(device: str) -> str | None:
    """Say why torch.compile makes no code for cpu or cuda on this machine; None: it does, as a trial has shown."""
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except (RuntimeError, OSError) as error:
        # Above the reason torch may say which backend raised it, and below how to learn more.
        return next(line for line in str(error).splitlines() if not line.startswith("backend="))
    return None


def compiles(model: ModelConfig, trainer: TrainerConfig) -> bool:
    """Return whether the model is compiled: where the settings say so, and this machine can."""
    return model.compile and not missing_compiler(model, trainer)


def missing_compiler(model: ModelConfig, trainer: TrainerConfig) -> list[str]:
    """Warn where the model is to be compiled, but torch can't do that here."""
    device = choose_device("cpu" if trainer.accelerator == "cpu" else "auto")
    problem = compiler_problem(device) if model.compile else None
    return [f"model.compile=true: trains uncompiled, to the same result; torch says: {problem}"] if problem else []


def set_threads(threads: int | None, world_size: int) -> None:
    """Give torch so many threads in each process; None leaves it to torch and Lightning."""
    if threads is None:
        return
    torch.set_num_threads(threads)
    if world_size > 1:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # or Lightning would divide the processors


def keep_freed_memory() -> bool:
    """Stop glibc from handing large blocks back to the system when they are freed; False where there is no glibc.

    A training step takes the same memory again at once. By default every tensor above 32 MiB, such as the logits, is
    mapped anew and cleared by the system page by page. On two cores with model=mini that took a fifth to a quarter of a
    training step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, Windows, musl
        return False
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_TOP_PAD, 64 * 2**20)])
