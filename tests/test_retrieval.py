"""Retrieved memory: what is found, what is mixed in, what has gradients, and what nobody sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.errors import SettingError
from poslab.memory.retrieval import RetrievedAttention, distance_bias, nearest, remembered, unit
from poslab.positions import RelativeTerms
from poslab.settings.retrieval import Retrieval

B, H, T, N, DH = 3, 2, 5, 37, 8


def tensors(*shapes: tuple[int, ...], grad: bool = False) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64, requires_grad=grad) for shape in shapes]


def layer(k: int) -> RetrievedAttention:
    """One whose gate and scale differ by head."""
    made = RetrievedAttention(H, k).double()
    torch.nn.init.normal_(made.gate)
    torch.nn.init.normal_(made.log_scale)
    return made


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


@pytest.mark.parametrize("known", [[N, N, N], [N, 4, 0], [1, N + 100, 12]])
def test_all_retrieved_is_dense_attention(known: list[int]) -> None:
    local, q = tensors((B, H, T, DH), (B, H, T, DH), grad=True)
    keys, values = unit(tensors((B, H, N, DH))[0]), tensors((B, H, N, DH))[0]
    made = layer(k=N)
    inputs = [local, q, made.gate, made.log_scale]
    found = made(local, q, keys, values, torch.tensor(known))
    wanted = dense(made, local, q, keys, values, [min(n, N) for n in known])
    assert torch.allclose(found, wanted, atol=1e-12)
    weight = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((wanted * weight).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize(("count", "k"), [(5000, 32), (4097, 1), (640, 32), (33, 32), (127, 31)])
def test_the_nearest_of_many(count: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.memory.retrieval._BLOCK", 3 * H * count)  # three queries at a time
    q, keys = (torch.randint(-99, 99, (2, H, n, DH)).double() for n in (7, count))  # whose products are exact
    scores, found = nearest(q, keys, torch.tensor([count, count - 1]), k)
    products = q @ keys.mT
    assert torch.equal(products.gather(-1, found), scores)
    products[1, :, :, 0] = -math.inf  # which the second row doesn't know
    assert torch.equal(products.topk(k).values, scores)
    assert all(len(set(row)) == k for row in found.flatten(0, 2).tolist())  # none of them twice


def test_equal_keys_are_all_found() -> None:
    q = torch.ones(1, 1, 1, DH)
    keys = torch.ones(1, 1, 400, DH)
    keys[..., 5, :] = 2.0
    scores, found = nearest(q, keys, torch.tensor([400]), 4)
    assert scores.tolist() == [[[[16.0, 8.0, 8.0, 8.0]]]]
    assert found[0, 0, 0, 0] == 5
    assert len(set(found.flatten().tolist())) == 4


def test_gradients_of_queries() -> None:
    q, keys = tensors((2, H, 3, DH), (2, H, N, DH))
    q.requires_grad_()
    assert torch.autograd.gradcheck(lambda q: nearest(q, keys, torch.tensor([N, 3]), 5)[0], q)


def test_rows_without_memories_have_local_attention() -> None:
    """To the bit, and with gradients that are zero rather than none or no number."""
    local, q = tensors((2, H, T, DH), (2, H, T, DH), grad=True)
    keys, values = tensors((2, H, N, DH), (2, H, N, DH))
    made = layer(k=4)
    for known in ([0, 0], [7, 0]):
        out = made(local, q, keys, values, torch.tensor(known))
        assert torch.equal(out[1], local[1])
        gradients = torch.autograd.grad(out[1].sum(), [local, q, made.gate, made.log_scale], allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
        assert all(gradient is not None and not gradient.any() for gradient in gradients[2:])


def test_only_the_nearest_count() -> None:
    local, q = tensors((B, H, T, DH), (B, H, T, DH))
    keys, values = unit(tensors((B, H, N, DH))[0]), tensors((B, H, N, DH))[0]
    made = layer(k=3)
    before = made(local, q, keys, values, torch.tensor([N] * B))
    _, found = nearest(unit(q), keys, torch.tensor([N] * B), 3)
    asked = torch.zeros(B, H, N, dtype=torch.bool).scatter(-1, found.flatten(2), True)
    assert not asked.all()
    values = values.masked_fill(~asked[..., None], 1e6)
    assert torch.equal(made(local, q, keys, values, torch.tensor([N] * B)), before)


def test_bias_by_true_distance() -> None:
    """Of query `first` + t on memory n of N, whose newest is one before the segment: first + t + N - n."""
    terms = RelativeTerms(0, 20, bias=torch.randn(H, 21, dtype=torch.float64, requires_grad=True))
    local, q = tensors((1, H, T, DH), (1, H, T, DH))
    keys, values = unit(tensors((1, H, N, DH))[0]), tensors((1, H, N, DH))[0]
    made = layer(k=N)
    found = made(local, q, keys, values, torch.tensor([N]), terms, first=2)
    bias = terms.dense_bias(T, N, offset=N + 2)
    scores = made.log_scale.exp()[:, None, None] * unit(q) @ keys.mT + bias
    share = made.gate.sigmoid()[:, None, None]
    wanted = torch.lerp(local, scores.softmax(-1) @ values, share)
    assert torch.allclose(found, wanted, atol=1e-12)
    assert terms.bias is not None
    gradients = [torch.autograd.grad(out.square().sum(), terms.bias)[0] for out in (found, wanted)]
    assert torch.allclose(*gradients, atol=1e-12)


def test_a_bias_may_hide_everything() -> None:
    terms = RelativeTerms(0, 3, bias=torch.tensor([[0.0, 0.0, 0.0, -math.inf]] * H, dtype=torch.float64))
    local, q = tensors((1, H, T, DH), (1, H, T, DH), grad=True)
    keys, values = tensors((1, H, N, DH), (1, H, N, DH))
    made = layer(k=4)
    out = made(local, q, keys, values, torch.tensor([N]), terms, first=3)
    assert torch.allclose(out, local * (1 - made.gate.sigmoid()[:, None, None]), atol=1e-12)
    out.sum().backward()
    assert made.log_scale.grad is not None
    assert made.log_scale.grad.isfinite().all()


def test_distance_bias_does_not_read_beyond_its_rows() -> None:
    terms = RelativeTerms(0, 50, bias=torch.arange(51.0)[None])
    found = torch.tensor([[[[0, 9]], [[3, 3]]]])  # (B, H, T, k)
    terms = RelativeTerms(0, 50, bias=torch.arange(51.0).expand(2, 51))
    assert distance_bias(terms, found, count=10, first=4).tolist() == [[[[14.0, 5.0]], [[11.0, 11.0]]]]


def test_what_is_remembered() -> None:
    kept, seen = None, []
    for length in (3, 4, 2, 9, 1):
        (new,) = tensors((1, H, length, DH), grad=True)
        seen.append(new)
        kept = remembered(kept, new, 8)
        assert torch.equal(kept, torch.cat(seen, -2)[:, :, -8:])
        assert not kept.requires_grad
        assert kept.is_contiguous()
    assert remembered(None, torch.ones(1, H, 3, DH, dtype=torch.bfloat16), 8).dtype == torch.float32


def test_16_bits() -> None:
    """Under autocast the search is in float32; what comes out is what went in."""
    local, q, v = (torch.randn(1, H, T, DH, dtype=torch.bfloat16) for _ in range(3))
    keys, values = remembered(None, unit(q), 9), remembered(None, v, 9)
    made = RetrievedAttention(H, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = made(local, q, keys, values, torch.tensor([T]))
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out, ((local.float() + v.float()) / 2).bfloat16(), atol=0.02)  # each finds itself


def test_refusals() -> None:
    with pytest.raises(SettingError, match="k=64: must be at most size=32"):
        Retrieval(layer=0, size=32, k=64)
    with pytest.raises(SettingError, match="layer=4: must be from 0 to 3, by num_layers=4"):
        Retrieval(layer=4).check(num_layers=4)
    with pytest.raises(SettingError, match="layer=-1: must be at least 0"):
        Retrieval(layer=-1)
