"""Machine that trains: its threads and memory, what it has for bfloat16, and whether it compiles the model."""

import ctypes

from poslab.attention.kernels.near_far import triton_problem
from poslab.config.schema import ModelConfig, TrainerConfig
from poslab.errors import SettingError
from poslab.processors import compiler_problem, cpu_capabilities
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


def compiles(model: ModelConfig, trainer: TrainerConfig) -> bool:
    """Return whether the model is compiled: by the settings or, where they leave it open, on CUDA; if torch can."""
    return _wants_compiled(model, trainer) and not missing_compiler(model, trainer)


def missing_compiler(model: ModelConfig, trainer: TrainerConfig) -> list[str]:
    """Warn where the model is to be compiled, but torch can't do that here."""
    problem = compiler_problem(_device(trainer)) if _wants_compiled(model, trainer) else None
    return [f"model.compile=true: trains uncompiled, to the same result; torch says: {problem}"] if problem else []


def _wants_compiled(model: ModelConfig, trainer: TrainerConfig) -> bool:
    """Return what the settings say; where they leave it open, no for a CPU and for weights that processes divide."""
    default = _device(trainer) == "cuda" and not trainer.strategy.startswith("fsdp")
    return default if model.compile is None else model.compile


def _device(trainer: TrainerConfig) -> str:
    return choose_device("cpu" if trainer.accelerator == "cpu" else "auto")


def check_attention_device(model: ModelConfig, trainer: TrainerConfig) -> None:
    """Raise SettingError for an attention backend that can't train on the device of the run."""
    device, problem = _device(trainer), None
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
