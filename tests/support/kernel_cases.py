"""Cases of attention for kernels in Triton, and their results, which a process of its own can compute by the
interpreter: whether it does is decided once in a process, when Triton is imported."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from oracles import random_terms
from strong_models import strong_model
from torch import Tensor

from poslab import GPT
from poslab.attention import attend, choice
from poslab.attention.kernels import near_far
from poslab.attention.kernels.near_far_launch import TILES, Call, Tile
from poslab.nn import Attention, Kerple
from poslab.positions import RelativeTerms
from poslab.positions.t5 import T5
from poslab.training.loss import language_model_loss
from poslab.training.summary import training_backend


@dataclass(frozen=True)
class Case:
    """Attention with random tables over a text; lowest and highest: distances of the tables."""

    tables: str  # as of `random_terms`, or "slopes": of a bias linear in the distance
    length: int
    highest: int = 0
    lowest: int = 0
    heads: int = 2
    shared_heads: int = 2  # of keys and values
    head_dim: int = 16
    window: int | None = None
    scale: float = 0.3
    dtype: torch.dtype = torch.float32
    steps: float = 0.0  # by which a bias rises every ten distances
    hidden: tuple[int, ...] = ()  # distances whose bias is -inf
    gates: bool = False  # a bias of keys, the sum of learned numbers along the text
    device: str = "cpu"

    def inputs(self) -> list[Tensor]:
        """Queries, keys, values and the gradient of the output, as a decoder has them: by token, not by head."""
        generator = torch.Generator().manual_seed(0)
        heads = self.heads, self.shared_heads, self.shared_heads, self.heads
        sizes = [(1, self.length, count, self.head_dim) for count in heads]
        return [torch.randn(size, generator=generator).to(self.dtype).transpose(1, 2) for size in sizes]

    def learned(self) -> list[Tensor]:
        """Numbers in float32 that the terms and the bias of keys are made of."""
        torch.manual_seed(1)
        if self.tables == "slopes":
            tables = [torch.rand(self.heads)]
        else:
            _, tables = random_terms(self.tables, self.heads, self.head_dim, self.lowest, self.highest, torch.float32)
        learned = [table.detach() for table in tables]
        if self.steps or self.hidden:
            learned[0] += self.steps * (torch.arange(learned[0].shape[-1]) // 10)
            learned[0][:, list(self.hidden)] = -torch.inf
        return learned + ([torch.rand(1, self.heads, self.length)] if self.gates else [])

    def terms(self, learned: list[Tensor]) -> RelativeTerms | None:
        if self.tables == "slopes":
            bias = -learned[0][:, None].double() * torch.arange(self.length, device=learned[0].device)
            return RelativeTerms(0, self.length - 1, bias=bias, linear=True)
        names = self.tables.removesuffix(" per head").split(", ") if self.tables != "none" else []
        tables: dict[str, Any] = dict(zip(names, learned, strict=False))
        return RelativeTerms(self.lowest, self.highest, window=self.window, **tables)


def results(case: Case, backend: str, attention: Callable[..., Tensor] = attend) -> list[Tensor]:
    """Return the output and the gradients of queries, keys, values and learned numbers; backend="exact": in float64."""
    inputs, learned = case.inputs(), case.learned()
    if backend == "exact":
        inputs, learned, backend = [x.double() for x in inputs], [x.double() for x in learned], "reference"
    q, k, v, grad, *learned = (x.to(case.device) for x in (*inputs, *learned))
    leaves = [x.detach().requires_grad_() for x in (q, k, v, *learned)]
    key_bias = leaves[-1].double().cumsum(-1) if case.gates else None
    out = attention(*leaves[:3], case.terms(leaves[3:]), key_bias=key_bias, scale=case.scale, backend=backend)
    return [x.detach().cpu() for x in (out, *torch.autograd.grad(out, leaves, grad))]


def steep_gradients(backend: str, dtype: torch.dtype) -> list[Tensor]:
    """Return the gradients of KERPLE's power kernel where it is steep: the bias of far pairs is d^1.96."""
    generator = torch.Generator().manual_seed(0)
    position = Kerple(heads=2, head_dim=16, kernel="power")
    with torch.no_grad():
        position.tables.r1.fill_(0.3)
        position.tables.r2.fill_(4.0)
    position = position.to(dtype)
    q, k, v, grad = torch.randn(4, 1, 2, 200, 16, generator=generator).to(dtype)
    out = Attention(position, backend=backend)(q, k, v)
    return [*torch.autograd.grad(out, list(position.parameters()), grad)]


def decoder_gradients(backend: str) -> list[Tensor]:
    """Return the loss of a decoder with shared key heads and a window, and the gradients of its parameters."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 40, "context_length": 70, "embed_dim": 32, "num_layers": 2, "num_heads": 4}
    model = GPT(
        T5(num_buckets=8, max_distance=20), **sizes, num_kv_heads=2, window=50, dropout=0.0, attention_backend=backend
    )
    loss = language_model_loss(model, torch.randint(40, (1, 70)), torch.randint(40, (1, 70)))
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def with_the_row_on(name: str, head_dim: int) -> tuple[int, bool, float]:
    """Train a decoder with a scheme while `auto` takes the kernels wherever it can: how many layers ran them, whether
    that is what the table says, and the largest difference of loss and gradients from the reference's."""
    row = next(row for row in choice.CHOICES if row.backend == "triton")
    rows = (row._replace(device=None, bits=None, first=1), *choice.CHOICES)
    sizes: dict[str, Any] = {"vocab_size": 40, "context_length": 20, "num_layers": 1, "num_heads": 2, "dropout": 0.0}
    sizes |= {"embed_dim": 2 * head_dim}
    tokens, targets = torch.randint(40, (2, 2, 20))

    def gradients(backend: str) -> tuple[GPT, list[Tensor]]:
        model = strong_model(name, **sizes, attention_backend=backend).train()
        torch.manual_seed(0)
        loss = language_model_loss(model, tokens, targets)
        found = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True, allow_unused=True)
        return model, [loss.detach(), *found]

    _, expected = gradients("reference")
    kernel = mock.Mock(wraps=near_far.near_far_attention)
    with mock.patch.object(choice, "CHOICES", rows), mock.patch.object(near_far, "near_far_attention", kernel):
        model, found = gradients("auto")
        chosen = training_backend(model, torch.device("cpu")) == "triton"
    difference = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    return kernel.call_count, chosen == (kernel.call_count > 0), difference


def compiled(case: Case) -> list[Tensor]:
    """Return the results of a compiled call. Raises an error where the graph breaks."""
    return results(case, "triton", torch.compile(attend, backend="aot_eager", fullgraph=True))


def stray_accesses(case: Case) -> int:
    """Count the numbers that kernels read or write outside of their tensors."""
    from triton.runtime import interpreter

    memory, stray = interpreter._interpreter, 0
    tensors: list[tuple[int, int]] = []

    def checked(access: Callable[..., Any]) -> Callable[..., Any]:
        def check(pointers: Any, *arguments: Any) -> Any:
            nonlocal stray
            mask = arguments[0] if access is load else arguments[1]
            addresses = pointers[mask]
            inside = sum((begin <= addresses) & (addresses < end) for begin, end in tensors)
            stray += int((inside == 0).sum())
            return access(pointers, *arguments)

        return check

    def known(call: Call, kernel: str, programs: int, **own: Any) -> None:
        tensors[:] = [
            (x.untyped_storage().data_ptr(), x.untyped_storage().data_ptr() + x.untyped_storage().nbytes())
            for x in (*call.given.values(), *own.values())
            if isinstance(x, Tensor)
        ]
        launch(call, kernel, programs, **own)

    launch, load, store = Call.launch, memory.load, memory.store
    with (
        mock.patch.object(Call, "launch", known),
        mock.patch.object(memory, "load", checked(load)),
        mock.patch.object(memory, "store", checked(store)),
    ):
        results(case, "triton")
    return stray


def with_tiles(case: Case, queries: int, keys: int) -> list[Tensor]:
    """Return the results of kernels with other tiles than their own; those of tables are square."""
    tile = Tile(queries, keys, 4, 1)
    square = Tile(queries, queries, 4, 1)
    tiles = {name: (square, square) if name[1] == "table_gradients" else (tile, tile) for name in TILES}
    with mock.patch.dict(TILES, tiles):
        return results(case, "triton")


def twice(case: Case, backend: str) -> list[list[Tensor]]:
    """Return the results of two calls."""
    return [results(case, backend), results(case, backend)]


@contextmanager
def interpreting() -> Iterator[Callable[..., Any]]:
    """Start a process in which Triton interprets its kernels on a CPU, and give what calls a function there."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1", OMP_NUM_THREADS="1"):
            pool.submit(round_as_a_gpu_does).result()
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def round_as_a_gpu_does() -> None:
    """Let the interpreter round to the nearest bfloat16, where by itself it cuts digits off."""
    from triton import language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def rounding(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source != tl.float32 or target != tl.bfloat16:
            return convert(data, source, target, mode)
        return torch.tensor(data).bfloat16().view(torch.int16).numpy().view("uint16")

    interpreter._convert_float = rounding
