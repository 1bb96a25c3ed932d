"""Text token by token: ours with a cache and without, and the peers' with theirs."""

import inspect
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.benchmark.entrants import EMBED, HEADS, LAYERS, VOCABULARY, our_schemes, poslab_model
from poslab.benchmark.report import Table
from poslab.benchmark.timing import Timing, take_turns
from poslab.benchmark.workers import start_all

CONTEXT, PROMPT, NEW = 1024, 16, 1000

# prompt (1, T), number of new tokens -> (1, T + n), the likeliest token each time
Generate = Callable[[Tensor, int], Tensor]


def measure_generation(rounds: int) -> tuple[dict[str, Any], list[Table]]:
    """(raw results, one table)."""
    workers, missing = start_all(build_generation, [*OURS, *PEERS])
    timings = take_turns({name: partial(worker.ask, NEW) for name, worker in workers.items()}, rounds, warmups=0)
    for worker in workers.values():
        worker.stop()
    return {"seconds": {name: asdict(timing) for name, timing in timings.items()}}, [_table(timings, missing)]


def build_generation(name: str) -> tuple[None, Callable[[int], float]]:
    """A function from a number of new tokens to the seconds that they took; it has been warmed up."""
    generate = (OURS | PEERS)[name]()
    prompt = torch.randint(VOCABULARY, (1, PROMPT), generator=torch.Generator().manual_seed(0))

    def seconds(count: int) -> float:
        started = time.perf_counter()
        text = generate(prompt, count)
        if text.shape != (1, PROMPT + count):
            raise RuntimeError(f"{name} wrote {text.shape[1] - PROMPT} tokens instead of {count}")
        return time.perf_counter() - started

    seconds(100)
    return None, seconds


def _cached(scheme: str) -> Generate:
    model = poslab_model(scheme, CONTEXT).eval()
    return lambda prompt, count: model.generate(prompt, count, temperature=0)


def _recomputing(scheme: str) -> Generate:
    """Without a cache: all tokens so far through the model each time, the head for the last of them only."""
    model = poslab_model(scheme, CONTEXT).eval()

    @torch.inference_mode()
    def generate(prompt: Tensor, count: int) -> Tensor:
        tokens = prompt
        for _ in range(count):
            logits = F.linear(model.hidden(tokens)[:, -1], model.token_embedding.weight)  # (1, V)
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens

    return generate


def _transformers() -> Generate:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=EMBED,
        n_layer=LAYERS,
        n_head=HEADS,
        eos_token_id=None,  # an untrained model may choose any token
    )
    model: Any = GPT2LMHeadModel(config).train(False)

    def generate(prompt: Tensor, count: int) -> Tensor:
        attended = torch.ones_like(prompt)
        return model.generate(
            prompt, attention_mask=attended, max_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0
        )

    return generate


def _book() -> Generate:
    """Its model with a cache, and what its generate_text_simple does with one; that function itself is written for the
    interface of the package's other models."""
    from llms_from_scratch.kv_cache import gpt2
    from llms_from_scratch.kv_cache.utils import KVCache

    # The package (1.0.19) takes the mask's columns for its rows, and fails at the first token after the prompt.
    source = inspect.getsource(gpt2.MultiHeadAttention.forward)
    mended = source.replace("causal_mask[:, -num_tokens:]", "causal_mask[-num_tokens:]")
    names = dict(vars(gpt2))
    exec(textwrap.dedent(mended), names)
    gpt2.MultiHeadAttention.forward = names["forward"]

    sizes = {"vocab_size": VOCABULARY, "context_length": CONTEXT, "emb_dim": EMBED, "n_heads": HEADS}
    model = gpt2.GPTModel(sizes | {"n_layers": LAYERS, "drop_rate": 0.0, "qkv_bias": True}).eval()
    model.out_head.weight = model.tok_emb.weight

    @torch.no_grad()
    def generate(prompt: Tensor, count: int) -> Tensor:
        cache = KVCache(n_layers=LAYERS)
        model.current_pos = 0
        tokens = new = prompt
        for _ in range(count):
            new = model(new, use_cache=True, cache=cache)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, new], dim=1)
        return tokens

    return generate


OURS: dict[str, Callable[[], Generate]] = {
    **{f"poslab {scheme}": partial(_cached, scheme) for scheme in our_schemes()},
    **{f"poslab {scheme}, no cache": partial(_recomputing, scheme) for scheme in our_schemes()},
}
PEERS: dict[str, Callable[[], Generate]] = {"transformers GPT-2": _transformers, "llms-from-scratch": _book}


def _table(timings: dict[str, Timing], missing: list[str]) -> Table:
    fastest = min(timing.median for name, timing in timings.items() if name in OURS)
    table = Table(
        f"Generation, {NEW:,} new tokens after {PROMPT}, greedy, one text, model=mini with a context of {CONTEXT:,}",
        ["", "tokens/s", "ms per token", "quartiles", "x the fastest of poslab"],
        notes=[
            "Untrained models, float32, each in a process of its own. Without a cache, all tokens so far go through "
            "poslab's model each time, and the last one's hidden state through the head. The peers generate with their "
            "own caches; the book's model has its head tied to the embedding, as all others have theirs.",
            *missing,
        ],
    )
    for name, timing in timings.items():
        quartiles = f"{timing.lower / NEW * 1e3:.1f} to {timing.upper / NEW * 1e3:.1f}"
        speed, each = f"{NEW / timing.median:,.0f}", f"{timing.median / NEW * 1e3:.1f}"
        table.rows.append([name, speed, each, quartiles, f"{timing.median / fastest:.2f}"])
    return table
