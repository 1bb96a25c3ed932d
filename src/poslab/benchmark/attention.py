"""Forward and backward pass of attention alone: ours, and what else computes the same."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import functional as F

from poslab.attention import attend
from poslab.benchmark.report import Table
from poslab.benchmark.timing import Timing, peak_memory, take_turns
from poslab.benchmark.workers import start_all
from poslab.config import CONFIGS, parse_scheme
from poslab.memory import keep_freed_memory
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.shaw import Shaw
from poslab.positions.t5 import T5, relative_position_bucket

Shape = tuple[int, int, int, int]  # (B, H, T, Dh)
Run = Callable[[], None]

SHAPES: tuple[Shape, ...] = ((8, 4, 256, 64), (2, 4, 1024, 64), (1, 4, 2048, 64), (1, 4, 4096, 64))
LONG: Shape = (1, 4, 16384, 64)  # memory only, and only for what keeps no (T, T) tensor


def measure_attention(
    rounds: int, shapes: Sequence[Shape] = SHAPES, long: Shape = LONG
) -> tuple[dict[str, Any], list[Table]]:
    """(raw results, one table per shape and one of memory)."""
    workers, missing = start_all(partial(build_attention, shapes=shapes, long=long), list(ENTRANTS))
    memory: dict[str, dict[Shape, int | None]] = {name: worker.about for name, worker in workers.items()}
    seconds, tables = {}, []
    for shape in shapes:
        cases = {name: partial(worker.ask, shape) for name, worker in workers.items() if shape in memory[name]}
        timings = take_turns(cases, rounds if shape[2] < 4096 else math.ceil(rounds / 2))
        seconds[str(shape)] = {name: asdict(timing) for name, timing in timings.items()}
        tables.append(_table(shape, timings, memory))
    for worker in workers.values():
        worker.stop()
    tables.append(_memory_table(memory, shapes, long))
    tables[-1].notes += missing
    in_words = {name: {str(shape): peak for shape, peak in peaks.items()} for name, peaks in memory.items()}
    return {"seconds": seconds, "peak_memory": in_words}, tables


def build_attention(
    name: str, shapes: Sequence[Shape], long: Shape
) -> tuple[dict[Shape, int | None], Callable[[Shape], float]]:
    """The peak memory at each shape that the entrant can run, and a function that times it at one of them."""
    linear = name == FLOOR or name.startswith("poslab ")
    runs = {shape: ENTRANTS[name](shape) for shape in shapes if _fits(name, shape)}
    memory = {shape: peak_memory(run) for shape, run in runs.items()}
    if linear:
        memory[long] = peak_memory(ENTRANTS[name](long))
    if name.startswith("poslab "):
        keep_freed_memory()  # as its training does

    def seconds(shape: Shape) -> float:
        runs[shape]()  # what others did in between has emptied the caches
        started = time.perf_counter()
        runs[shape]()
        return time.perf_counter() - started

    return memory, seconds


def _fits(name: str, shape: Shape) -> bool:
    """Whether the tensors (T, T, Dh) of the textbook, their gradients, and what einsum makes of them fit in memory."""
    _, _, length, head_dim = shape
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return name != TEXTBOOK or 6 * 4 * length * length * head_dim < 0.5 * memory


def _flash(shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    return _case(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v], grad)


def _ours(yaml: Path, shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    tables, terms = _terms(parse_scheme(OmegaConf.to_container(OmegaConf.load(yaml))), shape)
    learned = list(tables.values()) if terms() is not None else []  # else they have no part in attention
    return _case(lambda: attend(q, k, v, terms()), [q, k, v, *learned], grad)


def _dense(shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    table = _terms(T5(), shape)[0]["bias"]
    return _case(lambda: dense_t5(q, k, v, table), [q, k, v, table], grad)


def _sdpa(shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    tables, terms = _terms(T5(), shape)
    return _case(lambda: attend(q, k, v, terms(), backend="sdpa"), [q, k, v, tables["bias"]], grad)


def _textbook(shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    tables, _ = _terms(Shaw(), shape)
    keys, values = tables["keys"], tables["values"]
    return _case(lambda: textbook_shaw(q, k, v, keys[0], values[0]), [q, k, v, keys, values], grad)


def _transformers(shape: Shape) -> Run:
    q, _, _, grad = _inputs(shape)
    peer = transformers_t5(q)
    return _case(peer.forward, [q, *peer.module.parameters()], grad)


def _x_transformers(shape: Shape) -> Run:
    q, k, v, grad = _inputs(shape)
    peer = x_transformers_t5(q, k, v)
    return _case(peer.forward, [q, k, v, *peer.module.parameters()], grad)


FLOOR, TEXTBOOK = "flash, no positions", "textbook shaw"
ENTRANTS: dict[str, Callable[[Shape], Run]] = {
    FLOOR: _flash,
    **{f"poslab {yaml.stem}": partial(_ours, yaml) for yaml in sorted(CONFIGS.glob("pos/*.yaml"))},
    "dense t5": _dense,
    "SDPA, dense t5 bias": _sdpa,
    "transformers T5Attention": _transformers,
    "x-transformers T5 bias": _x_transformers,
    TEXTBOOK: _textbook,
}


def _inputs(shape: Shape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values, and the gradient of the output, each (B, H, T, Dh)."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad


def _terms(scheme: PositionScheme, shape: Shape) -> tuple[dict[str, Tensor], Callable[[], RelativeTerms | None]]:
    """A scheme's tables, and what it makes of them in one layer."""
    _, heads, length, head_dim = shape
    model = ModelShape(length, heads * head_dim, 1, heads)
    tables = {name: table.requires_grad_() for name, table in scheme.tables(model).items()}
    return tables, lambda: scheme.relative(tables, model, 0, range(length))


def _case(forward: Callable[[], Tensor], leaves: list[Tensor], grad: Tensor) -> Run:
    def run() -> None:
        torch.autograd.grad(forward(), leaves, grad)

    return run


def dense_t5(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """As most code does it: a bias (H, T, T), and the whole matrix of scores."""
    length = q.shape[-2]
    position = torch.arange(length)
    buckets = relative_position_bucket(position - position[:, None], bidirectional=False)
    bias = F.embedding(buckets, table).permute(2, 0, 1)  # (T, T, H) -> (H, T, T)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1) @ v


def textbook_shaw(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Equations 3 and 4 of the paper as written, with a vector per pair of positions (T, T, Dh)."""
    length = q.shape[-2]
    position = torch.arange(length)
    rows = (position[:, None] - position).clamp(0, len(keys) - 1)
    pair_keys, pair_values = F.embedding(rows, keys), F.embedding(rows, values)  # each (T, T, Dh)
    scores = (q @ k.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, pair_keys)) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1)
    return weights @ v + torch.einsum("bhij,ijd->bhid", weights, pair_values)


@dataclass
class Peer:
    """Another library's attention: what it learns, and its output (B, H, T, Dh)."""

    module: torch.nn.Module
    forward: Callable[[], Tensor]


def transformers_t5(q: Tensor) -> Peer:
    """T5Attention with its four projections replaced by nothing, so that only attention is left: q = k = v."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    _, heads, length, head_dim = q.shape
    config = T5Config(d_model=heads * head_dim, d_kv=head_dim, num_heads=heads, is_decoder=True, dropout_rate=0.0)
    config._attn_implementation = "sdpa"  # what a T5 model chooses by default
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    for projection in ("q", "k", "v", "o"):
        setattr(module, projection, torch.nn.Identity())
    mask = torch.full((1, 1, length, length), -math.inf).triu(1)

    def forward() -> Tensor:
        out = module(q.transpose(1, 2).flatten(2), mask=mask)[0]  # (B, T, H Dh)
        return out.unflatten(2, (heads, head_dim)).transpose(1, 2)

    return Peer(module, forward)


def x_transformers_t5(q: Tensor, k: Tensor, v: Tensor) -> Peer:
    """Its attention and its T5 bias."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    _, heads, length, head_dim = q.shape
    bias = RelativePositionBias(scale=head_dim**0.5, causal=True, heads=heads)
    attention = Attend(causal=True, heads=heads)
    return Peer(bias, lambda: attention(q, k, v, attn_bias=bias(length, length))[0])


def _table(shape: Shape, timings: dict[str, Timing], memory: dict[str, dict[Shape, int | None]]) -> Table:
    floor = timings[FLOOR].median
    table = Table(
        f"Attention, forward and backward, float32, (B, H, T, Dh) = {shape}",
        ["", "median ms", "quartiles", "x flash", "peak MB"],
    )
    for name, timing in timings.items():
        quartiles = f"{timing.lower * 1e3:.1f} to {timing.upper * 1e3:.1f}"
        ratio = f"{timing.median / floor:.2f}"
        table.rows.append([name, f"{timing.median * 1e3:.1f}", quartiles, ratio, _megabytes(memory[name][shape])])
    return table


def _memory_table(memory: dict[str, dict[Shape, int | None]], shapes: Sequence[Shape], long: Shape) -> Table:
    single = [shape for shape in (*shapes, long) if shape[0] == 1]  # comparable: they differ in T alone
    growth = f"T x {long[2] / single[0][2]:g}"
    table = Table(
        "Peak memory of a forward and backward pass above its inputs, MB, and how it grows",
        ["", *(f"T = {shape[2]}" for shape in single), growth],
        notes=[
            "Each entrant runs in a process of its own, and twice in each turn, of which the second run counts. poslab "
            "runs as it trains, with freed memory kept by the process, the others as torch comes. T5Attention runs "
            "with q = k = v and without its four projections. Textbook Shaw is left out where its (T, T, Dh) tensors "
            "would take half of the machine's memory. Peak memory is what the system counts for the process, before "
            "any freed memory is kept."
        ],
    )
    for name, by_shape in memory.items():
        peaks = [by_shape.get(shape) for shape in single]
        ratio = f"{peaks[-1] / peaks[0]:.1f} x" if peaks[-1] and peaks[0] else "n/a"
        table.rows.append([name, *map(_megabytes, peaks), ratio])
    return table


def _megabytes(size: int | None) -> str:
    return "n/a" if size is None else f"{size / 1e6:,.0f}"
