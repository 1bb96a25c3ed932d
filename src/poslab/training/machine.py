"""Machine that trains: its device and memory, and what it has for bfloat16."""

import ctypes

from poslab.attention.kernels.near_far import triton_problem
from poslab.config.schema import ModelConfig, TrainerConfig
from poslab.errors import SettingError
from poslab.processors import cpu_capabilities
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
    capabilities = cpu_capabilities()
    return next((unit for name, unit in _BFLOAT16_UNITS.items() if capabilities.get(name)), None)


def device_of(trainer: TrainerConfig) -> str:
    """Return the kind of device that a run trains on: cuda, mps or cpu."""
    return choose_device("cpu" if trainer.accelerator == "cpu" else "auto")


def check_attention_device(model: ModelConfig, trainer: TrainerConfig) -> None:
    """Raise SettingError for an attention backend that can't train on the device of the run."""
    device, problem = device_of(trainer), None
    if model.attention_backend == "flex" and device != "cuda":
        problem = "trains on CUDA only, as torch has no backward pass of it elsewhere"
    if model.attention_backend == "triton":
        problem = triton_problem(device)
    if problem:
        problem = f"{problem}; valid here: auto, reference, sdpa, banded, columns, blockwise"
        raise SettingError("model.attention_backend", model.attention_backend, problem)


def keep_freed_memory() -> None:
    """Stop glibc from handing large blocks back to the system when they are freed, where there is a glibc.

    A training step takes the same memory again at once. By default every tensor above 32 MiB, such as the logits, is
    mapped anew and cleared by the system page by page. On two cores with model=mini that took a fifth to a quarter of a
    training step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, Windows, musl
        return
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20)):
        mallopt(option, value)
