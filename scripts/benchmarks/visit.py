"""Short visit to a machine with a GPU: what poslab's kernels in Triton compute, with which tiles, and how fast.

    PYTHONPATH=src:scripts python -m benchmarks.visit FOLDER            on the GPU, about twelve minutes
    TRITON_INTERPRET=1 PYTHONPATH=src:scripts python -m benchmarks.visit FOLDER tiny      the same on a CPU, in a minute

Correctness comes first, then tiles by a short search, attention alone, training steps, and a profile. Each measurement
has a limit and adds a line to FOLDER/results.jsonl. A second call with the same folder goes on where the first one
ended, with the tiles that it found; it leaves out the measurement in which that was killed, as by a kernel that hangs.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.entrants import GPT2_ON_GPU, Size
from benchmarks.measure import device, now, peak_memory
from benchmarks.step import BARE, COMPILED, step_seconds
from poslab.attention import attend
from poslab.attention.kernels import near_far_launch
from poslab.attention.kernels.near_far_launch import KERNELS, TILES, Tile
from poslab.positions import RelativeTerms

# Tiles tried in place of each kernel's own: queries, keys, warps, stages. Those of tables are square.
TRIED = (Tile(128, 64, 4, 3), Tile(64, 64, 4, 3), Tile(64, 32, 4, 2))
TRIED_OF_TABLES = (Tile(64, 64, 4, 1),)
# What decides comes first; flex, banded and the rest of `auto` have been timed before (gpu_steps.csv).
STEPS: tuple[str, ...] = (
    "poslab absolute",
    BARE + COMPILED,
    "poslab t5, triton",
    "poslab shaw, triton",
    "poslab alibi, columns",
    "poslab rope",
    "poslab fire, triton",
    "poslab shaw, triton, CUDA graphs",
    "poslab absolute, CUDA graphs",
    "poslab alibi, triton",
)
STEPS += ("poslab t5", "poslab shaw", "poslab alibi", "poslab fire")
SECONDS = 60  # that a measurement may take, tests apart


@dataclass(frozen=True)
class Plan:
    """Sizes of a visit."""

    lengths: tuple[int, ...] = (1024, 4096, 16384)
    tokens: int = 16384  # of all texts of a batch
    heads: int = 12
    head_dim: int = 64
    size: Size = GPT2_ON_GPU
    rounds: int = 5
    steps: tuple[str, ...] = STEPS
    tiles: int | None = None  # tried of each kernel; None: all
    tests: bool = True  # those marked gpu, too


TINY_GPT = Size("one layer, batch 1 x 32", 1, 32, 1, 32, 64, heads=2)
TINY = Plan((32, 70), 70, 2, 16, TINY_GPT, 1, ("poslab t5, triton", "poslab alibi, columns", BARE), 1, tests=False)


class Results:
    """Lines of results.jsonl, each with the name of its measurement. The file `begun` has the one without an end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "results.jsonl"
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        self.found: dict[str, dict[str, Any]] = {line["name"]: line for line in map(json.loads, lines)}
        self.begun = folder / "begun"
        self.killed = self.begun.read_text(encoding="utf-8").splitlines() if self.begun.exists() else []

    def measure(self, name: str, run: Callable[[], dict[str, Any]], limit: int = SECONDS) -> dict[str, Any] | None:
        """Return what `run` returns, or did in an earlier call; None where it fails or takes longer than `limit`
        seconds, which a later call repeats, and where an earlier call was killed in it."""
        if name in self.found:
            return self.found[name]
        if name in self.killed:
            print(f"{name}: left out, as a call was killed in it; without {self.begun} it is tried again", flush=True)
            return None
        started = time.perf_counter()
        self.begun.write_text("\n".join([*self.killed, name]), encoding="utf-8")
        signal.signal(signal.SIGALRM, _stop)
        signal.alarm(limit)
        try:
            result = {"name": name, **run(), "took_s": round(time.perf_counter() - started, 1)}
        except Exception as error:  # of any kernel: the other measurements have a right to the visit's time
            print(f"{name}: FAILS: {type(error).__name__}: {str(error)[:300]}", flush=True)
            return None
        finally:
            signal.alarm(0)
            self.begun.write_text("\n".join(self.killed), encoding="utf-8")
        self.found[name] = result
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
        return result


def _stop(*_: object) -> None:
    raise TimeoutError("takes longer than its limit")


def visit(folder: Path, plan: Plan) -> None:
    """Make all measurements of a plan that `folder` doesn't have yet."""
    results = Results(folder)
    for table in TABLES:
        results.measure(f"errors {table}", partial(errors, table, plan))
    if plan.tests:
        kernels = "tests/attention/kernels/test_near_far.py"
        results.measure("tests of the kernels", partial(pass_tests, [kernels]), 200)
        results.measure("other tests marked gpu", partial(pass_tests, [f"--ignore={kernels}"]), 200)
    for kernel in KERNELS:
        for table in ("t5", "shaw"):
            search_tiles(results, kernel, table, plan)
    for length in plan.lengths:
        results.measure(f"attention flash {length}", partial(timing, flash_pass(plan, length), plan))
        for table, backends in TABLES.items():
            for backend in backends:
                run = attention_pass(table, backend, plan, length)
                results.measure(f"attention {table} {backend} {length}", partial(timing, run, plan))
    for name in plan.steps:
        results.measure(f"step {name}", partial(step, name, plan))
    results.measure("profile poslab t5, triton", partial(operations, "poslab t5, triton", plan))


# The tables of schemes by name, with the backends that compute them: flex is torch's flex_attention, sdpa a dense mask.
TABLES = {
    "alibi": ("columns", "triton", "flex", "sdpa"),
    "t5": ("triton", "flex", "sdpa"),
    "shaw": ("triton", "banded"),
    "fire": ("triton", "flex", "sdpa"),
}


def learned(table: str, plan: Plan, length: int) -> list[Tensor]:
    """Return learned numbers of a scheme's tables, as large as its own."""
    if table == "alibi":
        return [torch.rand(plan.heads)]
    if table == "shaw":
        return list(torch.randn(2, 17, plan.head_dim) / 4)
    rows = length if table == "fire" else min(length, 114)
    return [torch.randn(plan.heads, rows)]


def terms_of(table: str, numbers: list[Tensor], length: int) -> RelativeTerms:
    """Return the terms that a scheme makes of its learned numbers."""
    if table == "alibi":
        bias = -numbers[0][:, None].double() * torch.arange(length, device=numbers[0].device)
        return RelativeTerms(0, length - 1, bias=bias, linear=True)
    if table == "shaw":
        return RelativeTerms(0, 16, keys=numbers[0], values=numbers[1])
    return RelativeTerms(0, numbers[0].shape[-1] - 1, bias=numbers[0])


def inputs(plan: Plan, length: int, dtype: torch.dtype) -> list[Tensor]:
    """Return q, k, v and the gradient of the output, (B, H, T, Dh), as a decoder has them: by token.

    The same numbers in every precision: those that bfloat16 has.
    """
    generator = torch.Generator().manual_seed(0)
    size = max(1, plan.tokens // length), length, plan.heads, plan.head_dim
    numbers = [torch.randn(size, generator=generator).bfloat16() for _ in range(4)]
    return [x.to(device(), dtype).transpose(1, 2) for x in numbers]


def flash_pass(plan: Plan, length: int) -> Callable[[], list[Tensor]]:
    """Return a forward and backward pass of torch's flash attention without positions."""
    *qkv, grad = inputs(plan, length, torch.bfloat16)
    q, k, v = (x.detach().requires_grad_() for x in qkv)

    def run() -> list[Tensor]:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad)]

    return run


def attention_pass(
    table: str, backend: str, plan: Plan, length: int, dtype: torch.dtype = torch.bfloat16
) -> Callable[[], list[Tensor]]:
    """Return a forward and backward pass with a scheme's tables: the output, and the gradients of q, k, v, tables."""
    torch.manual_seed(0)
    tables = [numbers.to(device()) for numbers in learned(table, plan, length)]
    if dtype == torch.float64:
        tables = [numbers.double() for numbers in tables]
    *qkv, grad = inputs(plan, length, dtype)
    q, k, v, *tables = (x.detach().requires_grad_() for x in (*qkv, *tables))

    def run() -> list[Tensor]:
        out = attend(q, k, v, terms_of(table, tables, length), backend=backend)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v, *tables), grad)]

    return run


def errors(table: str, plan: Plan) -> dict[str, Any]:
    """Return relative errors of output and gradients against float64, and whether two runs are equal to the bit."""
    small = replace(plan, tokens=plan.lengths[0] - 5)  # no multiple of a tile
    length = small.tokens
    exact = attention_pass(table, "reference", small, length, torch.float64)()
    found: dict[str, Any] = {}
    for dtype in (torch.float32, torch.bfloat16):
        run = attention_pass(table, "triton", small, length, dtype)
        first, second = run(), run()
        pairs = zip(first, exact, strict=True)
        found[str(dtype)] = max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
        found[f"{dtype} equal"] = all(map(torch.equal, first, second))
    return found


def pass_tests(files: list[str]) -> dict[str, Any]:
    """Run the tests marked gpu, of some files or all. Raises CalledProcessError where one fails."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n0", "-q", "--continue-on-collection-errors", *files]
    subprocess.run(command, check=True)
    return {"failed": 0}


def search_tiles(results: Results, kernel: str, table: str, plan: Plan) -> None:
    """Try tiles of one kernel, and keep the fastest in its place."""
    vectors = "few" if table == "shaw" else "none"
    key = f"16 bits, {(near_far_launch.tiled_for(device()) or 90) / 10}", kernel, vectors
    own, large = TILES[key]
    tried = [own, *(TRIED_OF_TABLES if kernel == "table_gradients" else TRIED)[: plan.tiles]]
    length = plan.lengths[min(1, len(plan.lengths) - 1)]
    milliseconds = {}
    for tile in tried:
        TILES[key] = (tile, large)
        name = f"tile {kernel} {table} {'x'.join(map(str, astuple(tile)))}"
        result = results.measure(name, partial(timing, attention_pass(table, "triton", plan, length), plan))
        if result is not None:
            milliseconds[tile] = result["ms"]
    fastest = min(milliseconds, key=milliseconds.__getitem__, default=own)
    TILES[key] = (fastest, large)


def timing(run: Callable[[], object], plan: Plan) -> dict[str, Any]:
    """Return the median time of a pass, ms, and its memory, MB."""
    peak = peak_memory(run)
    seconds = []
    for _ in range(plan.rounds):
        started = now()
        run()
        seconds.append(now() - started)
    return {"ms": round(sorted(seconds)[len(seconds) // 2] * 1e3, 3), "MB": peak and round(peak / 1e6)}


def step(name: str, plan: Plan) -> dict[str, Any]:
    """Return the time of a training step, of bfloat16 autocast."""
    for _ in range(3):
        step_seconds(name, plan.size, torch.bfloat16)
    seconds = sorted(step_seconds(name, plan.size, torch.bfloat16) for _ in range(2 * plan.rounds))
    tokens = plan.size.batch * plan.size.length
    return {"ms": round(seconds[plan.rounds] * 1e3, 2), "tokens/s": round(tokens / seconds[plan.rounds])}


def operations(name: str, plan: Plan) -> dict[str, Any]:
    """Return the twenty longest operations of a training step, ms, by torch's profiler."""
    step_seconds(name, plan.size, torch.bfloat16)
    on_gpu = device().type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as recorded:
        step_seconds(name, plan.size, torch.bfloat16)
    times = {
        event.key: event.self_device_time_total if on_gpu else event.self_cpu_time_total
        for event in recorded.key_averages()
    }
    longest = sorted(times, key=times.__getitem__, reverse=True)[:20]
    return {"ms": {operation: round(times[operation] / 1e3, 3) for operation in longest}}


def main(folder: str, size: str = "whole") -> None:
    """Make a visit: of this machine's GPU, or with size="tiny" of its CPU."""
    if size != "tiny":
        torch.cuda.init()
        print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    visit(Path(folder), TINY if size == "tiny" else Plan())


if __name__ == "__main__":
    main(*sys.argv[1:])
