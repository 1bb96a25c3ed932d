"""Processors: how many there are, how many torch computes on, and whether torch compiles for them.

All that poslab uses of torch's private parts stands here, with what happens in a version that lacks it.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


def available() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_on(threads: int | None) -> None:
    """Give torch so many threads; None leaves it its own number."""
    if threads is not None:
        torch.set_num_threads(threads)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return a function compiled by itself, for up to 64 schemes, lengths and models that a process meets.

    options: of torch.compile. After torch's default of 8, counted over all that is compiled of one code, it would run
    uncompiled.
    """
    if "isolate_recompiles" not in inspect.signature(torch.compile).parameters:  # before torch 2.13
        if hasattr(torch._dynamo.config, "recompile_limit"):  # else beyond torch's default it runs uncompiled
            torch._dynamo.config.recompile_limit = 64
        return torch.compile(function, **options)
    own: Any = {"recompile_limit": 64, "isolate_recompiles": True}
    return torch.compile(function, **own, **options)


def in_transform() -> bool:
    """Return whether a function is transformed by one of torch.func, such as grad or vmap, or differentiated in forward
    mode, and not compiled."""
    if torch.compiler.is_compiling():
        return False
    if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
        return True
    transforms: Any = getattr(torch._C, "_functorch", None)
    return hasattr(transforms, "peek_interpreter_stack") and transforms.peek_interpreter_stack() is not None


def values_are_unknown() -> bool:
    """Return whether code can't depend on the values of tensors: compiled, or mapped by torch.func.vmap."""
    return torch.compiler.is_compiling() or in_transform()


@contextmanager
def backward_compiled_at_once() -> Iterator[None]:
    """Compile the backward pass with the forward pass within the context: once it is called there is no other way.

    In a version without this setting, an error of the compiler in the backward pass ends the training.
    """
    config: Any = getattr(getattr(torch, "_functorch", None), "config", None)
    if hasattr(config, name := "force_non_lazy_backward_lowering"):
        with config.patch(**{name: True}):
            yield
    else:
        yield


def compiler_errors() -> tuple[type[Exception], ...]:
    """Return what torch.compile raises where it can't compile; all runtime errors in a version that names them
    otherwise."""
    named = getattr(getattr(torch._dynamo, "exc", None), "TorchDynamoException", RuntimeError)
    return (named,)


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch says of the CPU; nothing in a version that doesn't tell."""
    ask = getattr(torch.cpu, "get_capabilities", dict)
    return dict(ask())


def cpu_flash_kernels() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return torch's flash attention for CPUs, forward and backward, which scaled_dot_product_attention runs; None in a
    version that lacks one of them, in which poslab's own kernel computes the same."""
    name = "_scaled_dot_product_flash_attention_for_cpu"
    forward, backward = (getattr(torch.ops.aten, f"{name}{of}", None) for of in ("", "_backward"))
    return None if forward is None or backward is None else (forward, backward)


def causal_flash_kernels(like: torch.Tensor) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return torch's causal flash attention for queries such as `like`, which scaled_dot_product_attention runs.

    forward(q, k, v, scale) returns output (B, H, T, Dh) and log-sum-exp (B, H, T), backward(grad_out, q, k, v, out,
    log_sum, scale) the gradients of q, k and v.
    """
    kind = "efficient_attention"
    if like.device.type == "cpu":
        kind = "flash_attention_for_cpu"
    elif like.dtype.itemsize == 2 and like.shape[-1] <= 256 and torch.cuda.get_device_capability(like.device) >= (8, 0):
        kind = "flash_attention"
    names = f"_scaled_dot_product_{kind}", f"_scaled_dot_product_{kind}_backward"
    forward_of, backward_of = (getattr(torch.ops.aten, name) for name in names)
    length, head_dim = like.shape[-2:]
    missing = -head_dim % 8  # numbers of a head, for the kernels of GPUs
    # The state of a generator for dropout, which isn't used.
    two, one = (torch.zeros(size, dtype=torch.int64, device=like.device) for size in (2, ()))

    def filled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, missing)) if missing else x

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> Any:
        more = (None, True) if kind == "efficient_attention" else ()
        out, log_sum = forward_of(*map(filled, (q, k, v)), *more, 0.0, True, scale=scale)[:2]
        return out[..., :head_dim], log_sum[..., :length]  # the efficient kernel's length is a multiple of 32

    def backward(grad_out: Any, q: Any, k: Any, v: Any, out: Any, log_sum: Any, scale: float) -> Any:
        grad_out, q, k, v, out = map(filled, (grad_out, q, k, v, out))
        if kind == "efficient_attention":
            log_sum = torch.nn.functional.pad(log_sum, (0, -length % 32), value=torch.inf)
            which = [True, True, True, False]
            arguments: Any = (grad_out, q, k, v, None, out, log_sum, one, one, 0.0, which, True)
        else:
            sizes = (None, None, length, length) if kind == "flash_attention" else ()
            state = (two, one) if kind == "flash_attention" else ()
            arguments = (grad_out, q, k, v, out, log_sum, *sizes, 0.0, True, *state)
        return [grad[..., :head_dim] for grad in backward_of(*arguments, scale=scale)[:3]]

    return forward, backward


def shared_memory() -> int:
    """Return the bytes of shared memory that a block of threads may have on the current GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return int(getattr(properties, "shared_memory_per_block_optin", 0))


def largest_tensor() -> Any:
    """Return a context whose `bytes` are those of the largest tensor made in it; a view counts as all of its storage.

    None in a version that doesn't show its operations, in which the contract doesn't try how memory grows.
    """
    mode: Any = getattr(getattr(torch.utils, "_python_dispatch", None), "TorchDispatchMode", None)
    if mode is None:
        return None

    class Largest(mode):  # type: ignore[misc]
        bytes = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                    self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
            return result

    return Largest()


@contextmanager
def float32_products_as(precision: str) -> Iterator[None]:
    """Compute products of float32 matrices on a CPU as "bf16" or "ieee" within the context. torch has this as a setting
    of the process and no option of a product; in a version without it they are exact."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if not hasattr(matmul, "fp32_precision"):
        yield
        return
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


def float32_products() -> str:
    """Return how products of float32 matrices are computed on a CPU now."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return str(getattr(matmul, "fp32_precision", "ieee"))


@cache
def compiler_problem(device: str) -> str | None:
    """Say why torch.compile makes no code for cpu or cuda on this machine; None: it does, as a trial has shown."""
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except (RuntimeError, OSError) as error:
        return compiler_reason(error)
    return None


def compiler_reason(error: Exception) -> str:
    """Return the line of an error of torch.compile that says what is wrong: above it may stand which backend raised it,
    and below how to learn more."""
    lines = (line for line in str(error).splitlines() if not line.startswith("backend="))
    return next(lines, type(error).__name__)
