"""Text token by token: ours with a cache and without, and transformers' with its own."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.entrants import MINI, TRANSFORMERS_GPT2, ours, poslab_gpt, transformers_gpt2
from benchmarks.measure import processes, take_turns
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig
from poslab.settings.schemes import default_scheme

SIZE = replace(MINI, length=1024)
PROMPT, NEW, WARM_UP = 16, 1000, 100
RECOMPUTING = f"poslab {default_scheme()}, no cache"

# prompt (1, T), number of new tokens -> (1, T + n), the likeliest token each time
Generate = Callable[[Tensor, int], Tensor]


def measure_generation(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """One table."""
    with processes([*ours(config.schemes), RECOMPUTING, TRANSFORMERS_GPT2]) as asks:
        for name, ask in asks.items():
            ask(generation_seconds, name, WARM_UP)
        cases = {name: partial(ask, generation_seconds, name, NEW) for name, ask in asks.items()}
        timings = take_turns(cases, rounds, warmups=0)
    fastest = min(timing.median for timing in timings.values())
    table = Table.of(
        f"Generation, {NEW:,} new tokens after {PROMPT}, greedy, one text, model=mini at a context of {SIZE.length:,}",
        timings,
        {
            "tokens/s": lambda t: f"{NEW / t.median:,.0f}",
            "ms per token": lambda t: f"{t.median / NEW * 1e3:.1f}",
            "quartiles": lambda t: t.quartiles(1e3 / NEW),
            "x the fastest": lambda t: f"{t.median / fastest:.2f}",
        },
    )
    return [table]


def generation_seconds(name: str, count: int) -> float:
    """Time that `count` new tokens took. Raises RuntimeError where the text ended early."""
    generate = generator(name)
    prompt = torch.randint(SIZE.vocabulary, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    started = time.perf_counter()
    text = generate(prompt, count)
    if text.shape != (1, PROMPT + count):
        raise RuntimeError(f"{name} wrote {text.shape[1] - PROMPT} tokens instead of {count}")
    return time.perf_counter() - started


@cache
def generator(name: str) -> Generate:
    return GENERATORS[name]()


def _cached(scheme: str) -> Generate:
    model = poslab_gpt(scheme, SIZE).eval()
    return lambda prompt, count: model.generate(prompt, count, temperature=0)


def _recomputing(scheme: str) -> Generate:
    """All tokens so far through the model each time, the head for the last of them only."""
    model = poslab_gpt(scheme, SIZE).eval()

    @torch.inference_mode()
    def generate(prompt: Tensor, count: int) -> Tensor:
        tokens = prompt
        for _ in range(count):
            logits = F.linear(model.hidden(tokens)[:, -1], model.token_embedding.weight)  # (1, V)
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens

    return generate


def _transformers() -> Generate:
    model = transformers_gpt2(SIZE).eval()
    greedy = partial(model.generate, do_sample=False, use_cache=True, pad_token_id=0)
    return lambda prompt, count: greedy(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count)


GENERATORS: dict[str, Callable[[], Generate]] = {
    **{name: partial(_cached, scheme) for name, scheme in ours().items()},
    RECOMPUTING: partial(_recomputing, default_scheme()),
    TRANSFORMERS_GPT2: _transformers,
}
