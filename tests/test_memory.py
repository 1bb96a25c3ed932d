"""Memory beyond the window: a text read segment by segment is the formula, for every scheme that can be far away."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import SCHEMES, VARIANTS, make_scheme
from poslab import GPT
from poslab.errors import SettingError
from poslab.positions import OneHead

SEGMENT, MEMORY, SEGMENTS = 3, 4, 3  # a memory that begins within a segment
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "context_length": SEGMENT,
    "embed_dim": 24,
    "num_layers": 2,
    "num_heads": 2,
}


def remembers(name: str) -> bool:
    try:
        return GPT(make_scheme(name), memory_length=MEMORY, **SIZES).remembers
    except SettingError:
        return False


REMEMBERING = [name for name in SCHEMES if remembers(name)]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if remembers(name)]


def strong_model(name: str, **sizes: Any) -> GPT:
    """Weights large enough for position to matter, in double precision."""
    torch.manual_seed(0)
    model = GPT(make_scheme(name), **({"dropout": 0.0, "memory_length": MEMORY} | SIZES | sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.double().eval()


def some_tokens(*shape: int) -> Tensor:
    return torch.randint(SIZES["vocab_size"], shape)


def by_formula(model: GPT, tokens: Tensor, read: list[int]) -> Tensor:
    """One text, tokens (N,), in one pass, layer by layer -> its hidden states (N, D).

    read: before each segment, how many tokens of its document were. A query sees its segment and so many tokens before
    it, at most memory_length; keys and values of these are made of what knows no gradient. Scores are the scheme's
    `score`, written from its paper.
    """
    length, tables = model.shape.context_length, dict(model.position_tables.named_parameters())
    positions = [read[place // length] + place % length for place in range(len(tokens))]
    embedded = model.pos.embed(tables, model.token_embedding(tokens)[None], torch.tensor(positions))
    x = embedded[0]  # (N, D)
    for number, block in enumerate(model.blocks):
        entering, attended = block.attention_norm(x), []
        terms = model.relative_terms(len(tokens))[number]
        for segment, before in enumerate(read):
            first, end = segment * length, (segment + 1) * length
            seen_from = first - min(before, model.memory_length)
            inputs = torch.cat([entering[:first].detach(), entering[first:end]])
            q, k, v = (part[0] for part in block.attention.queries_keys_values(inputs[None]))  # (H, N, Dh)
            seen = [[seen_from <= j <= i for j in range(end)] for i in range(end)]
            places = [max(0, before + j - first) for j in range(end)]
            for i in range(first, end):
                heads = []
                for head in range(model.shape.num_heads):
                    text = OneHead(q[head], k[head], inputs, places, seen)
                    keys = [j for j in range(end) if seen[i][j]]
                    scores = [model.pos.score(tables, model.shape, number, head, text, i, j) for j in keys]
                    weights = torch.stack(scores).softmax(0)
                    values = v[head, keys]
                    if terms is not None and terms.values is not None:
                        assert terms.values.dim() == 2
                        values = values + terms.values[terms.rows_of(i - torch.tensor(keys))]
                    heads.append(weights @ values)
                attended.append(torch.cat(heads))
        x = x + block.attention.project(torch.stack(attended))
        x = x + block.mlp(block.mlp_norm(x))
    return model.final_norm(x)


def in_segments(model: GPT, tokens: Tensor, reads: list[list[int]]) -> Tensor:
    """tokens (B, N) -> (B, N, D), with reads of each row before each segment, as a stream of documents gives them."""
    memory, found = model.empty_memory(len(tokens)), []
    for segment, read in zip(tokens.split(SEGMENT, dim=1), torch.tensor(reads).T, strict=True):
        hidden, memory = model.hidden_with_memory(segment, memory.restarted(read))
        found.append(hidden)
    return torch.cat(found, dim=1)


def gradients(model: GPT, hidden: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    parameters = list(model.parameters())
    return list(torch.autograd.grad((hidden * weight).sum(), parameters, materialize_grads=True))


@pytest.mark.parametrize("name", [*REMEMBERING, *OTHERS])
def test_segments_are_the_formula(name: str) -> None:
    """Rows begin documents in their own places: the second one within its second segment."""
    model = strong_model(name)
    tokens = some_tokens(2, SEGMENT * SEGMENTS)
    reads = [[0, 3, 6], [0, 3, 2]]
    found = in_segments(model, tokens, reads)
    expected = torch.stack([by_formula(model, row, read) for row, read in zip(tokens, reads, strict=True)])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    for own, other in zip(gradients(model, found), gradients(model, expected), strict=True):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-5)
