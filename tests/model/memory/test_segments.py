"""Memory beyond the window: a text read segment by segment is the formula, for every scheme that can be far away."""

from functools import partial
from typing import Any

import pytest
import strong_models
import torch
from common import SCHEMES, SOUND, VARIANTS, compose_config, make_scheme
from foreign_schemes import TurnedByTokens
from refusals import refused
from strong_models import some_tokens
from torch import Tensor, nn
from torch.nn import functional as F

from poslab import GPT
from poslab.contract.checks import has_formula
from poslab.errors import SettingError
from poslab.model.memory import Memory, MemoryGPT, Retrieval, with_memory
from poslab.model.mlp import ReLU2, SwiGLU
from poslab.positions import HeadInputs, ModelShape, PositionScheme
from poslab.positions.layers import Entry, Layers
from poslab.positions.nope import NoPE
from poslab.positions.randomized import Randomized
from poslab.positions.rope import RoPE

SEGMENT, MEMORY, SEGMENTS = 3, 4, 3  # a memory that begins within a segment
SIZES: dict[str, Any] = {"vocab_size": 61, "context_length": SEGMENT, "embed_dim": 24, "num_layers": 2, "num_heads": 2}


def remembers(name: str) -> bool:
    try:
        MemoryGPT(make_scheme(name), memory_length=MEMORY, **SIZES)
    except SettingError:
        return False
    return True


REMEMBERING = [name for name in SOUND if remembers(name)]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if remembers(name)]


def strong_model(scheme: str | PositionScheme, **sizes: Any) -> MemoryGPT:
    return strong_models.strong_model(scheme, MemoryGPT, **({"memory_length": MEMORY} | SIZES | sizes)).double()


def by_formula(model: GPT, tokens: Tensor, read: list[int]) -> Tensor:
    """Return hidden states (N, D) of one text, tokens (N,), in one pass, layer by layer.

    read: before each segment, how many tokens of its document were. A query sees its segment and so many tokens before
    it, at most memory_length; keys and values of these are made of what knows no gradient. Tokens are mixed within a
    segment. Scores are the scheme's `score`, written from its paper.
    """
    length, tables = model.shape.context_length, dict(model.position_tables.named_parameters())
    positions = [read[index // length] + index % length for index in range(len(tokens))]
    embedded = model.pos.embed(tables, model.token_embedding(tokens)[None], torch.tensor(positions))
    x = embedded[0]  # (N, D)
    for number, block in enumerate(model.blocks):
        parts = [F.pad(part, (0, 0, model.pos.mixed_tokens - 1, 0)) for part in block.attention_norm(x).split(length)]
        entering, attended = torch.cat([model.pos.mix(tables, number, part[None])[0] for part in parts]), []
        terms = model.relative_terms(len(tokens))[number]
        for segment, before in enumerate(read):
            first, end = segment * length, (segment + 1) * length
            seen_from = first - min(before, model.memory_length)
            inputs = torch.cat([entering[:first].detach(), entering[first:end]])
            q, k, v = (part[0] for part in block.attention.queries_keys_values(inputs[None]))  # (H, N, Dh)
            seen = [[seen_from <= j <= i for j in range(end)] for i in range(end)]
            position_ids = [max(0, before + j - first) for j in range(end)]
            for i in range(first, end):
                heads = []
                for head in range(model.shape.num_heads):
                    text = HeadInputs(q, k, inputs, position_ids, seen, model.shape, number, head)
                    keys = [j for j in range(end) if seen[i][j]]
                    scores = [model.pos.reference_score(tables, text, i, j) for j in keys]
                    null = model.pos.reference_null(tables, text, i)
                    weights = torch.stack([*scores, *([] if null is None else [null])]).softmax(0)[: len(keys)]
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
    """Return hidden states (B, N, D) of tokens (B, N), with reads of each row before each segment, as from a stream."""
    memory, found = model.empty_memory(len(tokens)), []
    segments = tokens.split(model.shape.context_length, dim=1)
    for segment, read in zip(segments, torch.tensor(reads).T, strict=True):
        torch.manual_seed(2)  # of dropout
        hidden, memory = model.hidden_with_memory(segment, memory.restarted(read))
        found.append(hidden)
    return torch.cat(found, dim=1)


def gradients(model: GPT, hidden: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    parameters = list(model.parameters())
    return list(torch.autograd.grad((hidden * weight).sum(), parameters, materialize_grads=True))


# Windows hold in layers that have one; the others see all of memory.
WINDOWED = pytest.param(Layers((Entry(RoPE(), 4), Entry(NoPE()))), id="a window that begins in memory")
TURNED = pytest.param(TurnedByTokens(), id="keys that see their token's state")


@pytest.mark.parametrize("scheme", [*REMEMBERING, WINDOWED, TURNED, *OTHERS])
def test_segments_are_the_formula(scheme: str | PositionScheme) -> None:
    """Rows begin documents in their own places: the second one within its second segment."""
    model = strong_model(scheme)
    if not has_formula(model.pos):
        pytest.skip(f"{scheme} has no `score` to be held against")
    tokens = some_tokens(2, SEGMENT * SEGMENTS)
    reads = [[0, 3, 6], [0, 3, 2]]
    found = in_segments(model, tokens, reads)
    expected = torch.stack([by_formula(model, row, read) for row, read in zip(tokens, reads, strict=True)])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradients(model, found), gradients(model, expected), atol=1e-5, rtol=1e-5)


def test_a_first_segment_is_a_window_to_the_bit_and_later_ones_remember() -> None:
    for name in REMEMBERING:
        model = strong_model(name, dropout=0.1, embed_dim=24).train()
        tokens = some_tokens(2, 2 * SEGMENT)
        torch.manual_seed(1)
        expected = model.hidden(tokens[:, :SEGMENT])
        torch.manual_seed(1)
        found, memory = model.hidden_with_memory(tokens[:, :SEGMENT], model.empty_memory(2))
        assert torch.equal(found, expected), name
        assert memory.inputs.shape == (2, 2, SEGMENT, 24)
        assert not memory.inputs.requires_grad
        model.eval()
        remembering, _ = model.hidden_with_memory(tokens[:, SEGMENT:], memory)
        assert (remembering - model.hidden(tokens[:, SEGMENT:])).abs().max() > 1e-3, name


def test_without_memory_segments_are_windows_to_the_bit() -> None:
    model = strong_model("t5", memory_length=0)
    tokens = some_tokens(2, 3 * SEGMENT + 1)
    found, memory = model.hidden_in_segments(tokens)
    assert torch.equal(found, torch.cat([model.hidden(part) for part in tokens.split(SEGMENT, 1)], 1))
    assert memory.inputs is None
    assert memory.read.tolist() == [10, 10]


RETRIEVALS = [{"retrieval": Retrieval(0, size=9, k=4)}, {"retrieval": Retrieval(1, size=9, k=4), "memory_length": 0}]


@pytest.mark.parametrize("sizes", [{}, {"memory_length": 0}, *RETRIEVALS], ids=str)
def test_only_targets_are_computed_and_nothing_else_changes(sizes: dict[str, Any]) -> None:
    model = strong_model("t5", **sizes)
    tokens = some_tokens(3, 4 * SEGMENT - 1)
    everything, whole = model.hidden_in_segments(tokens)
    for position_ids in ([(0, 4), (2, 1), (2, 10), (1, 10)], [(1, 7)], []):
        target_mask = torch.zeros(3, 4 * SEGMENT - 1, dtype=torch.bool)
        for row, place in position_ids:
            target_mask[row, place] = True
        found, memory = model.hidden_in_segments(tokens, target_mask=target_mask)
        torch.testing.assert_close(found, everything[target_mask], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(memory.plain(), whole.plain(), atol=1e-9, rtol=1e-9)
        if position_ids:
            again = model.hidden_in_segments(tokens)[0][target_mask]
            torch.testing.assert_close(gradients(model, found), gradients(model, again), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", REMEMBERING)
def test_kernels_agree_where_memory_is_before_several_blocks(name: str) -> None:
    found = {}
    for backend in ("reference", "auto"):
        sizes = {"context_length": 130, "num_layers": 1, "memory_length": 121, "dropout": 0.3}
        model = strong_model(name, attention_backend=backend, **sizes).train()
        hidden = in_segments(model, some_tokens(2, 260), [[0, 130], [0, 7]])
        found[backend] = [hidden, *gradients(model, hidden)]
    torch.testing.assert_close(found["auto"], found["reference"], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("retrieval", [None, Retrieval(1, size=8, k=2)])
def test_memory_is_taken_apart_joined_and_kept(retrieval: Retrieval | None) -> None:
    model = strong_model("t5", retrieval=retrieval)
    tokens = some_tokens(3, 3 * SEGMENT)
    _, memory = model.hidden_in_segments(tokens)
    parts = [memory.rows(slice(0, 1)), memory.rows(slice(1, 3))]
    assert [len(part.read) for part in parts] == [1, 2]
    for again in (Memory.joined(parts), Memory(**memory.plain()), memory.to("cpu")):
        assert again.plain().keys() == {"read", "inputs"} | ({"keys", "values"} if retrieval else set())
        assert all(torch.equal(tensor, memory.plain()[name]) for name, tensor in again.plain().items())
    assert Memory.joined([model.empty_memory(2), model.empty_memory(1)]).plain().keys() == {"read"}


def test_rows_that_remember_less_are_joined_and_see_no_more() -> None:
    model = strong_model("t5")
    tokens = some_tokens(2, 3 * SEGMENT)
    _, longer = model.hidden_in_segments(tokens[:1, : 2 * SEGMENT])
    _, shorter = model.hidden_in_segments(tokens[1:, SEGMENT : 2 * SEGMENT])
    found, _ = model.hidden_with_memory(tokens[:, 2 * SEGMENT :], Memory.joined([longer, shorter]))
    for row, own in enumerate([longer, shorter]):
        expected, _ = model.hidden_with_memory(tokens[row : row + 1, 2 * SEGMENT :], own)
        torch.testing.assert_close(found[row : row + 1], expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in SCHEMES if name not in REMEMBERING])
def test_a_scheme_that_ends_is_refused_in_a_line(name: str) -> None:
    with refused("memory_length", "4"):
        strong_model(name)
    with refused("model.memory_length", "4"):
        compose_config(f"pos={name}", "model.memory_length=4")
    assert strong_model(name, memory_length=0).reach == 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"causal": False}, "memory_length=4: needs a causal model: this one sees the future"),
        ({"memory_length": -1}, "memory_length=-1: must be at least 0"),
        (
            {"pos": Randomized(max_position=6)},
            "memory_length=4: this position scheme ends at a length: it knows 6 positions, no more",
        ),
        (
            {"pos": make_scheme("xpos", scale_base=1), "memory_length": 64},
            "memory_length=64: this position scheme ends at a length",
        ),
    ],
)
def test_a_model_that_cant_remember_is_refused_in_a_line(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=f"^{problem}"):
        MemoryGPT(**({"memory_length": MEMORY} | SIZES | settings))


def test_drawn_positions_are_of_memory_and_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    model = strong_model("randomized").train()
    drawn: list[int] = []
    sample = Randomized.sample

    def noted(self: Randomized, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor:
        drawn.append(length)
        return sample(self, shape, length, generator)

    monkeypatch.setattr(Randomized, "sample", noted)
    model.hidden_in_segments(some_tokens(2, 3 * SEGMENT))[0].sum().backward()
    assert drawn == [3, 6, 7]


@pytest.mark.parametrize("name", REMEMBERING)
def test_dropout_and_bfloat16_train(name: str) -> None:
    torch.manual_seed(0)
    model = MemoryGPT(make_scheme(name), dropout=0.2, memory_length=MEMORY, **SIZES)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, memory = model.hidden_in_segments(some_tokens(2, 3 * SEGMENT))
    hidden.float().square().mean().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    assert memory.inputs is not None


def test_generation_from_prompts_of_unequal_length_is_that_of_each() -> None:
    model = strong_model("t5")
    prompts = [some_tokens(1, length)[0].tolist() for length in (3, SEGMENT + 2, 3 * SEGMENT)]
    settings: dict[str, Any] = {"max_new_tokens": 9, "temperature": 0}
    alone = [model.generate([prompt], **settings)[0] for prompt in prompts]
    assert model.generate(prompts, **settings) == alone
    stop = alone[0][5]
    stopped = [model.generate([prompt], stop_token=stop, **settings)[0] for prompt in prompts]
    assert model.generate(prompts, stop_token=stop, **settings) == stopped


def test_generation_remembers_the_whole_prompt() -> None:
    model = strong_model("t5", num_layers=4)
    prompt = some_tokens(1, 5 * SEGMENT + 1)
    changed = prompt.clone()
    changed[:, 2 * SEGMENT] = (changed[:, 2 * SEGMENT] + 1) % SIZES["vocab_size"]
    text = model.generate(prompt, 8, temperature=0)
    for n in range(8):
        read = text[:, : prompt.shape[1] + n]
        logits = model.hidden_in_segments(read)[0][:, -1] @ model.token_embedding.weight.T
        assert logits.argmax(-1) == text[:, prompt.shape[1] + n]
    cache = model.new_cache()
    before, after = (model.hidden(tokens, model.new_cache())[:, -1] for tokens in (prompt, changed))
    assert (before - after).abs().max() > 1e-6
    model.hidden(some_tokens(1, 100), cache)
    assert max(layer.keys.buffer.shape[-2] for layer in cache.read) <= 4 * (SEGMENT + MEMORY)
    slid = [model.hidden(tokens[:, -MEMORY:], model.new_cache(SEGMENT)) for tokens in (prompt, changed)]
    assert torch.equal(*slid)


def test_a_memory_of_other_rows_is_refused() -> None:
    model = strong_model("t5")
    with refused("memory", "3 rows", "2"):
        model.hidden_with_memory(some_tokens(2, SEGMENT), model.empty_memory(3))


@pytest.mark.parametrize(
    "block",
    [
        {"window": 2},
        {"norm": partial(nn.RMSNorm, eps=1e-2), "mlp": SwiGLU, "qk_norm": "rms", "biases": False, "tied": False},
        {"num_kv_heads": 1, "gate": "head", "mlp": ReLU2, "head_dim": 5},
    ],
)
def test_a_model_with_memory_added_has_the_block_of_the_model(block: dict[str, Any]) -> None:
    model = strong_models.strong_model("alibi", GPT, **SIZES | {"context_length": 9} | block).eval()
    tokens = some_tokens(2, 9)
    remembering = with_memory(model, 0)
    found = remembering.hidden_in_segments(tokens)[0] @ remembering.head_weight.T
    torch.testing.assert_close(found, model(tokens))
