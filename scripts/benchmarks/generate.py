"""Benchmark of generation: poslab with and without a cache, other libraries with theirs, and reading of the weights."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bare import BareGPT
from benchmarks.entrants import (
    MINI,
    TRANSFORMERS_GPT2,
    X_TRANSFORMERS_GPT,
    of_libraries,
    ours,
    poslab_gpt,
    transformers_gpt2,
    x_transformers_gpt,
)
from benchmarks.measure import Timing, processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.config.nodes import default_scheme

SIZE = replace(MINI, length=1024)
PROMPT, WARM_UP = 16, 100
RECOMPUTING = f"poslab {default_scheme()}, no cache"
READING = "torch matrices alone"  # as often as there are tokens: nothing that computes them can be faster
PRECISIONS = {"float32": torch.float32, "bfloat16 weights": torch.bfloat16}

# prompt (1, T), number of new tokens -> (1, T + n), the likeliest token each time
Generate = Callable[[Tensor, int], Tensor]


def measure_generation(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return one table per precision; only the first has the model without a cache."""
    new, tables = config.new_tokens, []
    rivals = of_libraries([TRANSFORMERS_GPT2, X_TRANSFORMERS_GPT], config.rivals)
    with processes([READING, *ours(config.schemes), RECOMPUTING, *rivals]) as asks:
        for precision, dtype in PRECISIONS.items():
            names = [name for name in asks if name != RECOMPUTING or dtype == torch.float32]
            for name in names:
                asks[name](generation_seconds, name, dtype, min(WARM_UP, new))
            cases = {name: partial(asks[name], generation_seconds, name, dtype, new) for name in names}
            tables.append(_table(precision, new, take_turns(cases, rounds, warmups=0)))
    return tables


def _table(precision: str, new: int, timings: dict[str, Timing]) -> Table:
    rivals = [t.median for name, t in timings.items() if name in (TRANSFORMERS_GPT2, X_TRANSFORMERS_GPT)]
    columns: dict[str, Callable[[Timing], str]] = {
        "tokens/s": lambda t: f"{new / t.median:,.0f}",
        "ms per token": lambda t: f"{t.median / new * 1e3:.2f}",
        "quartiles": lambda t: t.quartiles(1e3 / new, digits=2),
        "x its matrices' time": lambda t: f"{t.median / timings[READING].median:.2f}",
    }
    if rivals:
        columns["x the fastest rival's time"] = lambda t: f"{t.median / min(rivals):.2f}"
    size = f"model=mini at a context of {SIZE.length:,}"
    return Table.of(
        f"Generation, {precision}, {new:,} new tokens after {PROMPT}, greedy, one text, {size}", timings, columns
    )


def generation_seconds(name: str, dtype: torch.dtype, count: int) -> float:
    """Return the time of `count` new tokens. Raises RuntimeError if the text ended early."""
    generate = generator(name, dtype)
    prompt = torch.randint(SIZE.vocabulary, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    started = time.perf_counter()
    text = generate(prompt, count)
    if text.shape != (1, PROMPT + count):
        raise RuntimeError(f"{name} wrote {text.shape[1] - PROMPT} tokens instead of {count}")
    return time.perf_counter() - started


@cache
def generator(name: str, dtype: torch.dtype) -> Generate:
    return GENERATORS[name](dtype)


def _cached(scheme: str, dtype: torch.dtype) -> Generate:
    model = poslab_gpt(scheme, SIZE).eval().to(dtype)
    return lambda prompt, count: torch.as_tensor(model.generate(prompt, count, temperature=0))


def _recomputing(scheme: str, dtype: torch.dtype) -> Generate:
    """Return a generator that passes all tokens through the model for each new one, the head for the last only."""
    model = poslab_gpt(scheme, SIZE).eval().to(dtype)

    @torch.inference_mode()
    def generate(prompt: Tensor, count: int) -> Tensor:
        tokens = prompt
        for _ in range(count):
            logits = F.linear(model.hidden(tokens)[:, -1], model.token_embedding.weight)  # (1, V)
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens

    return generate


def _reading(dtype: torch.dtype) -> Generate:
    """Return a generator that multiplies one vector with every matrix of the model and repeats the prompt's last
    token."""
    model = BareGPT(SIZE).to(dtype)
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)] + [model.tokens.weight]
    vectors = [torch.ones(matrix.shape[1], dtype=dtype) for matrix in matrices]

    @torch.inference_mode()
    def generate(prompt: Tensor, count: int) -> Tensor:
        for _ in range(count):
            for vector, matrix in zip(vectors, matrices, strict=True):
                torch.mv(matrix, vector)
        return torch.cat([prompt, prompt[:, -1:].expand(-1, count)], 1)

    return generate


def _transformers(dtype: torch.dtype) -> Generate:
    model = transformers_gpt2(SIZE).eval().to(dtype)
    greedy = partial(model.generate, do_sample=False, use_cache=True, pad_token_id=0)
    return lambda prompt, count: greedy(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count)


def _x_transformers(dtype: torch.dtype) -> Generate:
    from x_transformers import AutoregressiveWrapper

    model = AutoregressiveWrapper(x_transformers_gpt(SIZE)).eval().to(dtype)
    return lambda prompt, count: torch.cat([prompt, model.generate(prompt, count, temperature=0.0, cache_kv=True)], 1)


GENERATORS: dict[str, Callable[[torch.dtype], Generate]] = {
    **{name: partial(_cached, scheme) for name, scheme in ours().items()},
    RECOMPUTING: partial(_recomputing, default_scheme()),
    READING: _reading,
    TRANSFORMERS_GPT2: _transformers,
    X_TRANSFORMERS_GPT: _x_transformers,
}
