"""Retrieved memory: what is found, what is mixed in, what has gradients, and what nobody sees."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from common import SCHEMES
from refusals import refused
from torch import Tensor
from torch.nn import functional as F

from poslab import GPT
from poslab.attention import PositionIds, SchemeLayer
from poslab.config.schemes import parse_scheme
from poslab.model.memory import MemoryGPT, Retrieval
from poslab.model.memory.retrieval import Lookup, RetrievedAttention, nearest, remembered, unit
from poslab.positions import ModelShape, PositionScheme, RelativeTerms

B, H, T, N, DH = 3, 2, 5, 37, 8


def tensors(*shapes: tuple[int, ...], grad: bool = False) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64, requires_grad=grad) for shape in shapes]


def layer(k: int) -> RetrievedAttention:
    """Return a layer whose gate and scale differ by head."""
    made = RetrievedAttention(H, Retrieval(0, max(k, N), k)).double()
    torch.nn.init.normal_(made.gate)
    torch.nn.init.normal_(made.log_scale)
    return made


def mixed(
    made: RetrievedAttention,
    local: Tensor,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    known: list[int],
    terms: RelativeTerms | None = None,
    first: int = 0,
) -> Tensor:
    """Return a layer's mix of local attention and retrieval with these terms, for queries from index `first` on."""
    layer = SchemeLayer(Fixed(terms), {}, ModelShape(T, H * DH, 1, H), 0, None, PositionIds(torch.arange(T)))
    lookup = Lookup(N, torch.tensor(known), keys, values, first)
    made.settings = replace(made.settings, position_bias=terms is not None)
    return made(local, q, q, q, lookup, layer)


@dataclass(frozen=True)
class Fixed(PositionScheme):
    """A scheme with the same terms for any distances."""

    terms: Any

    def relative(self, tables: Any, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        return self.terms


def dense(made: RetrievedAttention, local: Tensor, q: Tensor, keys: Tensor, values: Tensor, known: list[int]) -> Tensor:
    """The formula, row by row, over all that each row knows."""
    rows = []
    for row, count in enumerate(known):
        scale = made.log_scale.exp()[:, None, None]
        first = keys.shape[-2] - count
        scores = scale * F.normalize(q[row], dim=-1) @ keys[row, :, first:].mT
        retrieved = scores.softmax(-1) @ values[row, :, first:]
        share = made.gate.sigmoid()[:, None, None]
        rows.append(share * retrieved + (1 - share) * local[row] if count else local[row])
    return torch.stack(rows)


@pytest.mark.parametrize("known", [[N, N, N], [N, 4, 0], [1, N, 12]])
def test_all_retrieved_is_dense_attention(known: list[int]) -> None:
    local, q = tensors((B, H, T, DH), (B, H, T, DH), grad=True)
    keys, values = unit(tensors((B, H, N, DH))[0]), tensors((B, H, N, DH))[0]
    made = layer(k=N)
    inputs = [local, q, made.gate, made.log_scale]
    found = mixed(made, local, q, keys, values, known)
    wanted = dense(made, local, q, keys, values, known)
    assert torch.allclose(found, wanted, atol=1e-12)
    weight = torch.randn_like(found)
    mine, theirs = (torch.autograd.grad((out * weight).sum(), inputs) for out in (found, wanted))
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-5)


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize(("count", "k"), [(5000, 32), (4097, 1), (640, 32), (33, 32), (127, 31)])
def test_the_nearest_of_many(count: int, k: int, newest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.model.memory.retrieval._BLOCK", 3 * H * count)  # three queries at a time
    q, keys = (torch.randint(-99, 99, (2, H, n, DH)).double() for n in (7, count))  # whose products are exact
    scores, found = nearest(q, keys, torch.tensor([count, count - 1]), k, newest)
    products = q @ keys.mT
    assert torch.equal(products.gather(-1, found), scores)
    products[1, :, :, 0] = -math.inf  # which the second row doesn't know
    assert torch.equal(products.topk(k).values, scores)
    assert all(len(set(row)) == k for row in found.flatten(0, 2).tolist())  # none of them twice


def test_of_equal_keys_the_newest_are_found() -> None:
    q = torch.ones(1, 1, 2, DH)
    keys = torch.full((1, 1, 400, DH), 1.0) + 2e-7 * torch.rand(400, 1)
    keys[..., 5, :] = 2.0
    keys[..., 390:, :] = 0.0
    scores, found = nearest(q, keys, torch.tensor([400]), 4, newest=True)
    assert torch.allclose(scores, torch.tensor([16.0, 8.0, 8.0, 8.0]), atol=1e-5)
    assert found.flatten(0, 2).tolist() == [[5, 389, 388, 387]] * 2
    assert nearest(q, keys, torch.tensor([400]), 1, newest=True)[1].unique().tolist() == [5]
    assert nearest(q, keys, torch.tensor([10]), 3, newest=True)[1].flatten(0, 2).tolist() == [[399, 398, 397]] * 2


def test_rows_without_memories_have_local_attention() -> None:
    local, q = tensors((2, H, T, DH), (2, H, T, DH), grad=True)
    keys, values = tensors((2, H, N, DH), (2, H, N, DH))
    made = layer(k=4)
    for known in ([0, 0], [7, 0]):
        out = mixed(made, local, q, keys, values, known)
        assert torch.equal(out[1], local[1])
        gradients = torch.autograd.grad(out[1].sum(), [local, q, made.gate, made.log_scale], allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
        assert all(gradient is not None and not gradient.any() for gradient in gradients[2:])


def test_only_the_nearest_count() -> None:
    local, q = tensors((B, H, T, DH), (B, H, T, DH))
    keys, values = unit(tensors((B, H, N, DH))[0]), tensors((B, H, N, DH))[0]
    made = layer(k=3)
    before = mixed(made, local, q, keys, values, [N] * B)
    _, found = nearest(unit(q), keys, torch.tensor([N] * B), 3)
    target_mask = torch.zeros(B, H, N, dtype=torch.bool).scatter(-1, found.flatten(2), True)
    assert not target_mask.all()
    values = values.masked_fill(~target_mask[..., None], 1e6)
    assert torch.equal(mixed(made, local, q, keys, values, [N] * B), before)


def test_a_bias_may_hide_everything() -> None:
    terms = RelativeTerms(0, 3, bias=torch.tensor([[0.0, 0.0, 0.0, -math.inf]] * H, dtype=torch.float64))
    local, q = tensors((1, H, T, DH), (1, H, T, DH), grad=True)
    keys, values = tensors((1, H, N, DH), (1, H, N, DH))
    made = layer(k=4)
    out = mixed(made, local, q, keys, values, [N], terms, first=3)
    assert torch.allclose(out, local * (1 - made.gate.sigmoid()[:, None, None]), atol=1e-12)
    out.sum().backward()
    assert made.log_scale.grad.isfinite().all()


def test_16_bits() -> None:
    local, q, v = (torch.randn(1, H, T, DH, dtype=torch.bfloat16) for _ in range(3))
    keys, values = remembered(None, unit(q), 9), remembered(None, v, 9)
    made = RetrievedAttention(H, Retrieval(0, 9, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = mixed(made, local, q, keys, values, [T])
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out, ((local.float() + v.float()) / 2).bfloat16(), atol=0.02)  # each finds itself


def test_refusals() -> None:
    with refused("retrieval.k", "64", "size=32"):
        Retrieval(layer=0, size=32, k=64)
    with refused("retrieval.layer", "-1", "0"):
        Retrieval(layer=-1)
    with refused("retrieval.layer", "4", "num_layers=4", "0", "3"):
        MemoryGPT(num_layers=4, retrieval=Retrieval(layer=4))
    with refused("retrieval.layer", "0"):
        MemoryGPT(causal=False, retrieval=Retrieval(layer=0))
    for pos in ("shaw", "rope", "nope"):
        with refused("retrieval.position_bias", "true"):
            MemoryGPT(parse_scheme(pos), retrieval=Retrieval(layer=1, position_bias=True), **TINY)


TINY = {"vocab_size": 11, "context_length": 6, "embed_dim": 16, "num_layers": 3, "num_heads": 2, "dropout": 0.0}


def tiny(pos: PositionScheme | None = None, memory_length: int = 0, **settings: Any) -> MemoryGPT:
    """Model in double precision, with a gate and scale that differ by head."""
    model = MemoryGPT(pos, memory_length=memory_length, retrieval=Retrieval(**settings), **TINY).double().eval()
    retrieval = model.blocks[model.retrieval.layer].attention.retrieval
    torch.nn.init.normal_(retrieval.gate)
    torch.nn.init.normal_(retrieval.log_scale)
    return model


def by_hand(model: GPT, tokens: Tensor) -> Tensor:
    """Return hidden states of a text in segments, the layer that retrieves written out: dense, over all before."""
    retrieval, length = model.retrieval, model.shape.context_length
    made, keys, values, found = model.blocks[retrieval.layer].attention.retrieval, [], [], []
    for segment in tokens.split(length, dim=1):
        position_ids = PositionIds(torch.arange(segment.shape[1]))
        x = model.embedded(segment, position_ids)
        for number, (block, layer) in enumerate(zip(model.blocks, model.position.layers(position_ids), strict=True)):
            normed = layer.mix(block.attention_norm(x))
            q, k, v = block.attention.queries_keys_values(normed)
            out = layer.attend(q, k, v, normed)
            if number == retrieval.layer:
                if keys:
                    scores = made.log_scale.exp()[:, None, None] * unit(q) @ torch.cat(keys, -2).mT
                    if retrieval.position_bias:
                        there = sum(part.shape[-2] for part in keys)
                        whole = model.relative_terms(there + segment.shape[1])[number]
                        scores = scores + whole.dense_bias(segment.shape[1], there, offset=there)
                    out = torch.lerp(out, scores.softmax(-1) @ torch.cat(values, -2), made.shares[:, None, None])
                keys.append(unit(k).detach())
                values.append(v.detach())
            x = x + block.attention.project(out.transpose(1, 2).flatten(-2))
            x = x + block.mlp(block.mlp_norm(x))
        found.append(model.final_norm(x))
    return torch.cat(found, 1)


WITH_BIAS = ("t5", "alibi", "kerple", "rope_t5")


@pytest.mark.parametrize(
    ("pos", "layer", "bias"),
    [("t5", 0, False), *((name, 2, False) for name in SCHEMES), *((name, 1, True) for name in WITH_BIAS)],
)
def test_retrieving_everything_is_dense_attention_beside_the_local(pos: str, layer: int, bias: bool) -> None:
    model = tiny(parse_scheme(pos), layer=layer, size=100, k=100, position_bias=bias)
    with torch.no_grad():
        for table in model.position_tables.parameters() if bias else ():
            table.uniform_(0.5, 1)
    tokens = torch.randint(11, (2, 21))
    hidden, memory = model.hidden_in_segments(tokens)
    wanted = by_hand(model, tokens)
    assert torch.allclose(hidden, wanted, atol=1e-10)
    weight, parameters = torch.randn_like(hidden), list(model.parameters())
    mine, theirs = (
        torch.autograd.grad((out * weight).sum(), parameters, allow_unused=True) for out in (hidden, wanted)
    )
    torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=1e-5)
    assert memory.keys.shape[-2] == 21


@pytest.mark.parametrize("memory_length", [0, 4])
def test_nothing_of_the_future_or_of_another_document(memory_length: int) -> None:
    model = tiny(memory_length=memory_length, layer=1, size=30, k=3)
    tokens = torch.randint(11, (2, 24))
    other = torch.cat([tokens[:, :14], torch.randint(11, (2, 10))], 1)
    hidden, changed = (model.hidden_in_segments(text)[0] for text in (tokens, other))
    assert torch.equal(hidden[:, :14], changed[:, :14])
    # Row 1 begins a document with the third segment: it sees nothing of before.
    earlier = torch.cat([torch.randint(11, (2, 10)), tokens[:, 10:12]], 1)
    third = []
    for before in (tokens[:, :12], earlier):
        _, memory = model.hidden_in_segments(before)
        memory = replace(memory, keys=memory.keys.clone(), values=memory.values.clone())
        third.append((model.hidden_with_memory(tokens[:, 12:18], memory.restarted(torch.tensor([12, 0])))[0], memory))
    (first, _), (second, _) = third
    assert not torch.allclose(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_only_the_last_tokens_are_kept() -> None:
    """Of 24 tokens the last 8, of which two are in the segment before the last."""
    model, tokens, after = tiny(layer=1, size=8, k=8), torch.randint(11, (1, 24)), torch.randint(11, (1, 6))
    found = []
    for changed in (slice(0, 0), slice(0, 12), slice(17, 18)):
        text = tokens.clone()
        text[:, changed] = (text[:, changed] + 1) % 11
        _, memory = model.hidden_in_segments(text)
        assert memory.keys.shape[-2] == memory.values.shape[-2] == 8
        assert not memory.keys.requires_grad
        found.append(model.hidden_with_memory(after, memory)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def test_without_it_the_model_is_the_same() -> None:
    torch.manual_seed(0)
    plain = GPT(**TINY)
    torch.manual_seed(0)
    model = MemoryGPT(retrieval=Retrieval(layer=1), **TINY)
    state = model.state_dict()
    assert {name for name in state if "retrieval" in name} == state.keys() - plain.state_dict().keys()
    assert all(torch.equal(weight, state[name]) for name, weight in plain.state_dict().items())
    tokens, counts = torch.randint(11, (2, 6)), plain.parameter_counts()
    assert torch.equal(model(tokens), plain(tokens))
    assert torch.equal(model.hidden_in_segments(tokens)[0], plain.hidden(tokens))
    assert model.parameter_counts()["trunk"] == counts["total"]
    assert model.parameter_counts()["total"] == counts["total"] + 4  # a gate and a scale by head


def assert_cached_reading_is_that_of_segments(model: GPT, tokens: Tensor, *splits: int | list[int]) -> None:
    wanted, _ = model.hidden_in_segments(tokens)
    for sizes in splits:
        cache = model.new_cache()
        cached = torch.cat([model.hidden(part, cache) for part in tokens.split(sizes, dim=1)], 1)
        assert torch.allclose(cached, wanted, atol=1e-10)


@pytest.mark.parametrize("memory_length", [0, 4])
@pytest.mark.parametrize("pos", ["t5", "rope", "shaw", "sinusoidal"])
def test_cached_reading_is_that_of_segments(pos: str, memory_length: int) -> None:
    model = tiny(parse_scheme(pos), memory_length, layer=1, size=14, k=5, position_bias=pos == "t5")
    assert_cached_reading_is_that_of_segments(model, torch.randint(11, (3, 25)), 1, [5, 1, 7, 12])


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("pos", ["t5", "alibi"])
def test_cached_reading_finds_the_same_of_equal_keys(pos: str, layer: int) -> None:
    """Text with doubled tokens, whose keys are equal but for rounding, and whose distances are not."""
    model = tiny(parse_scheme(pos), layer=layer, size=48, k=5, position_bias=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # so that it matters which they are
    tokens = torch.randint(11, (2, 30)).repeat_interleave(2, dim=1)
    assert_cached_reading_is_that_of_segments(model, tokens, 1, 7)


def test_generation_goes_on_beyond_a_scheme_that_ends() -> None:
    """Models without memory_length read all of a prompt, with any scheme."""
    model = tiny(parse_scheme("absolute"), layer=1, size=14, k=5)
    prompts = torch.randint(11, (2, 20))
    out = model.generate(prompts, 9, temperature=0, strict=True)
    for length in range(20, 29):
        hidden, _ = model.hidden_in_segments(out[:, :length])
        assert torch.equal((hidden[:, -1] @ model.token_embedding.weight.T).argmax(-1), out[:, length])
