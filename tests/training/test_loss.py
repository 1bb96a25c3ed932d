"""Head and cross-entropy in one, against torch's functions."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.tasks.base import IGNORED
from poslab.training import loss as loss_module
from poslab.training.loss import head_loss


def inputs(
    dtype: torch.dtype = torch.float64, tokens: int = 23, vocabulary: int = 101
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden (N, 16), weight (V, 16) and targets (N,), three of which don't count."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, 16, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(vocabulary, 16, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    targets[[0, 7, 22]] = IGNORED
    return [hidden, weight, targets]


def separate(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight), targets)


def loss_and_gradients(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    return [loss, *torch.autograd.grad(3 * loss, leaves)]


@pytest.mark.parametrize("logits_at_a_time", [1, 101 * 5, 2**25])
@pytest.mark.parametrize("in_cache", [1, 101 * 2, 2**20])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_gradients_are_those_of_torch(
    logits_at_a_time: int, in_cache: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "_LOGITS", logits_at_a_time)
    monkeypatch.setattr(loss_module, "_IN_CACHE", in_cache)
    hidden, weight, targets = inputs(dtype)
    found = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
    wanted = loss_and_gradients(separate(hidden, weight, targets), hidden, weight)
    torch.testing.assert_close(found, wanted, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-6)


@pytest.mark.parametrize("pieces", [1, 4])
def test_bfloat16_rounds_products_and_sums_in_float32(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearer to the exact loss than torch's function on bfloat16, and gradients as near as those of autocast."""
    hidden, weight, targets = inputs(torch.float32, tokens=400, vocabulary=500)
    monkeypatch.setattr(loss_module, "_LOGITS_OF_16_BITS", 400 * 500 // pieces)
    monkeypatch.setattr(loss_module, "_COLUMNS", 128)
    exact = loss_and_gradients(separate(hidden.double(), weight.double(), targets), hidden, weight)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
        usual = loss_and_gradients(separate(hidden, weight, targets), hidden, weight)
    assert [x.dtype for x in found] == [torch.float32] * 3
    assert abs(found[0] - exact[0]) < 2e-3
    for x, y, z in zip(found[1:], usual[1:], exact[1:], strict=True):
        assert 0 < (x - z).norm() < 1.2 * (y - z).norm() + 1e-6


def test_answers_without_any_share_have_a_finite_loss() -> None:
    hidden, weight, targets = inputs(torch.float32)
    hidden, weight = (x.detach().mul(30).requires_grad_() for x in (hidden, weight))
    loss = head_loss(hidden, weight, targets)
    torch.testing.assert_close(loss, separate(hidden, weight, targets))
    assert loss > 1000


@pytest.mark.parametrize("rows", [2**12, 70_000])
def test_sums_over_many_rows_fit_into_float16(rows: int) -> None:
    hidden, weight = torch.ones(rows, 4).requires_grad_(), torch.zeros(65, 4).requires_grad_()
    with torch.autocast("cpu", torch.float16):
        (found,) = torch.autograd.grad(head_loss(hidden, weight, torch.zeros(rows, dtype=torch.long)), weight)
    expected = torch.full((65, 4), 1 / 65)
    expected[0] -= 1
    assert torch.allclose(found, expected, rtol=1e-3)


def test_weights_of_16_bits_have_gradients_of_16_bits() -> None:
    hidden, weight, targets = inputs(torch.bfloat16)
    loss, of_hidden, of_weight = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
    assert (loss.dtype, of_hidden.dtype, of_weight.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)
    torch.testing.assert_close(loss, separate(hidden.float(), weight.float(), targets), rtol=2e-2, atol=0.0)


@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_are_the_same_when_asked_for_again(autocast: bool) -> None:
    hidden, weight, targets = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = head_loss(hidden, weight, targets)
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    kept = [x.clone() for x in first]
    again = torch.autograd.grad(loss, (hidden, weight))
    assert all(torch.equal(x, y) for x, y in zip(kept, again, strict=True))


@pytest.mark.parametrize("logits_at_a_time", [1, 101 * 5, 2**27])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_way_of_gpus_has_the_same_loss_and_gradients(
    logits_at_a_time: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With columns that no token has, so that the products are aligned."""
    monkeypatch.setattr(loss_module, "_gradients_on", lambda device: loss_module._gradients)
    hidden, weight, targets = inputs(dtype)
    hidden.data[1] *= 1e3  # an answer without any share
    expected = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
    monkeypatch.setattr(loss_module, "_LOGITS_ON_GPU", logits_at_a_time)
    monkeypatch.setattr(loss_module, "_stays_in_cache", lambda hidden: False)
    found = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
    rounding = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_gradients(dtype: torch.dtype) -> None:
    """torch 2.11 compiles a function that changes its logits to one with another loss."""
    torch.manual_seed(0)
    logits, targets = (3 * torch.randn(50, 128)).to(dtype), torch.randint(100, (50, 1))
    logits[:, 100:] = -torch.inf
    found = loss_module._gradients_on("cpu")(logits, targets, torch.float32)
    torch.testing.assert_close(found, loss_module._gradients(logits, targets, torch.float32))
    assert (found[0][:, 100:] == 0).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("autocast", [False, True])
def test_on_a_gpu(autocast: bool) -> None:
    leaves = inputs(torch.float32, tokens=400, vocabulary=50257)
    hidden, weight, targets = (x.detach().cuda() for x in leaves)
    hidden.requires_grad_(), weight.requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        found = loss_and_gradients(head_loss(hidden, weight, targets), hidden, weight)
    exact = loss_and_gradients(separate(hidden.double(), weight.double(), targets), hidden, weight)
    for x, y in zip(found, exact, strict=True):
        assert (x - y).norm() < (2e-2 if autocast else 1e-5) * y.norm()


@pytest.mark.parametrize("all_at_once", [False, True])
def test_where_no_target_counts_gradients_are_0(all_at_once: bool) -> None:
    hidden, weight, targets = inputs(torch.float32)
    loss = (separate if all_at_once else head_loss)(hidden, weight, torch.full_like(targets, IGNORED))
    _, *gradients = loss_and_gradients(loss, hidden, weight)
    assert loss.isnan()
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("target", [-1, 10**6])
def test_a_target_that_is_none_is_refused(target: int) -> None:
    hidden, weight, targets = inputs(torch.float32)
    with pytest.raises((IndexError, RuntimeError), match=r"out of bounds"):
        head_loss(hidden, weight, targets.index_fill(0, torch.tensor([0]), target))


def test_second_derivatives_are_refused() -> None:
    """A loss's own gradient is constant, so torch's mark would let them be wrong."""
    hidden, weight, targets = inputs(torch.float32)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(head_loss(hidden, weight, targets), hidden, create_graph=True)
