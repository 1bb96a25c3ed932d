"""Compile every kernel of poslab.attention.kernels.near_far_kernels for GPUs that needn't be there, and check what
comes out: no spilled registers, no atomic additions, no more shared memory than there is.

python scripts/maintenance/compile_kernels.py [PART_OF_A_NAME ...]       by default all, in a few minutes on two cores

Ends with 1 where a kernel fails. It runs the assembler that comes with the package triton; without it, it says so and
checks nothing.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from poslab.attention.kernels.near_far_launch import KERNELS, SHARED_MEMORY, Form

# What a kernel is compiled for, by the tables that it then has; heads are GPT-2's.
TABLES: dict[str, dict[str, Any]] = {
    "T5's bias": {"near": 113, "bias": True},
    "a bias and a window": {"near": 113, "bias": True, "window": True},
    "a bias of keys": {"near": 0, "key_bias": True},
    "Shaw's keys and values": {"near": 16, "keys": True, "values": True},
    "keys of every distance": {"near": 1024, "keys": True},
}
# In float32 the smallest tile there is holds no more than two operands of 16 x 128 in registers. With keys or values by
# distance it needs more, and spills so many bytes at most.
SPILT_WITH_LARGE_HEADS = 256
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
# Arguments that are neither in the dtype of queries nor float32.
DOUBLE = {"key_bias_ptr"}
OF_DTYPE = {"q_ptr", "k_ptr", "v_ptr", "keys_ptr", "values_ptr", "out_ptr", "grad_out_ptr"}
OF_DTYPE |= {"grad_q_ptr", "grad_k_ptr", "grad_v_ptr"}


@dataclass(frozen=True)
class Task:
    """A kernel to be compiled."""

    kernel: str
    tables: str
    dtype: torch.dtype
    head_dim: int
    capability: int

    @property
    def form(self) -> Form:
        tables = dict.fromkeys(("bias", "key_bias", "keys", "values", "window"), False) | TABLES[self.tables]
        return Form(self.capability, self.dtype, heads=12, shared_heads=12, head_dim=self.head_dim, **tables)

    @property
    def may_spill(self) -> int:
        """How many bytes of registers may be spilt."""
        vectors = self.form.keys or self.form.values
        large = self.dtype == torch.float32 and self.head_dim > 64
        return SPILT_WITH_LARGE_HEADS if vectors and large else 0

    def __str__(self) -> str:
        return f"sm_{self.capability} {self.kernel}, {NAMES[self.dtype]}, heads of {self.head_dim}, {self.tables}"


def tasks() -> Iterator[Task]:
    """Yield every kernel by tables, numbers and heads, for each capability: all rows of the table of tiles.

    Without matrix units float32 is the same code on all GPUs, so one capability has it in full.
    """
    for capability in SHARED_MEMORY:
        for kernel in KERNELS:
            yield Task(kernel, "T5's bias", torch.float16, 64, capability)
            yield Task(kernel, "T5's bias", torch.float32, 64, capability)
            for tables in TABLES:
                if kernel == "table_gradients" and tables == "a bias of keys":
                    continue  # it has no tables
                for head_dim in (64, 128):
                    yield Task(kernel, tables, torch.bfloat16, head_dim, capability)
                    if capability == 80 and tables != "T5's bias":
                        yield Task(kernel, tables, torch.float32, head_dim, capability)


def missing_tools() -> str | None:
    """Say why nothing can be compiled here; None: it can."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return "the package triton isn't installed, which comes with torch for CUDA"
    missing = [name for name in ("ptxas", "cuobjdump") if not (_tools(spec.origin) / name).exists()]
    return f"triton has no {' and no '.join(missing)} for this machine" if missing else None


def _tools(triton_file: str | None) -> Path:
    return Path(triton_file or "").parent / "backends/nvidia/bin"


def compiled(task: Task) -> Any:
    """Compile a kernel, as a call with tensors in the usual layout would."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from poslab.attention.kernels import near_far_kernels

    kernel, constants = getattr(near_far_kernels, task.kernel), task.form.constants(task.kernel)
    signature, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in ("scale", "grad_scale"):
            signature[name] = "fp32"
        elif not name.endswith("_ptr"):
            signature[name] = "i32"
        else:
            other = "fp64" if name in DOUBLE else "fp32"
            signature[name] = f"*{NAMES[task.dtype] if name in OF_DTYPE else other}"
        # Tensors begin at multiples of 16 bytes, and so do their heads and tokens.
        if name.endswith(("_ptr", "_b", "_h", "_t")):
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    tile = task.form.tile(task.kernel)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return triton.compile(source, target=GPUTarget("cuda", task.capability, 32), options=options)


def check(task: Task) -> tuple[str, list[str]]:
    """Return what a kernel takes, and what is wrong with it."""
    import triton

    result, tools = compiled(task), _tools(triton.__file__)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(result.asm["cubin"])
        file.flush()
        command = [str(tools / "cuobjdump"), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))  # type: ignore[index]
    atomics = len(re.findall(r"^\s*(?:@!?%p\d+\s+)?(?:atom|red)\.", result.asm["ptx"], flags=re.MULTILINE))
    shared = result.metadata.shared / 1024
    problems = []
    if stack > task.may_spill:
        problems.append(f"spills {stack} bytes of registers")
    if atomics > 0:
        problems.append(f"{atomics} atomic additions")
    if shared > SHARED_MEMORY[task.capability]:
        problems.append(f"{shared:.0f} KiB of shared memory, of {SHARED_MEMORY[task.capability]}")
    tile = task.form.tile(task.kernel)
    figures = f"{tile.queries} x {tile.keys}, {tile.warps} warps: {registers} registers, {shared:.0f} KiB"
    return figures, problems


def main(*names: str) -> int:
    """Check the kernels whose names have one of the parts in them, and print each. Return how many fail."""
    if problem := missing_tools():
        print(f"no kernel is compiled: {problem}")
        return 0
    chosen = [task for task in tasks() if not names or any(name in str(task) for name in names)]
    failed = 0
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for task, (figures, problems) in zip(chosen, pool.imap(check, chosen), strict=True):
            failed += bool(problems)
            print(f"{task}: {figures}{''.join(f'; FAILS: {problem}' for problem in problems)}", flush=True)
    print(f"{len(chosen)} kernels compiled, {failed} fail")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(*sys.argv[1:])))
