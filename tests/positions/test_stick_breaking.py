"""Stick-breaking: the product of what is left, over many keys, and rows that sum to at most 1."""

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.positions.stick_breaking import StickBreaking


@pytest.mark.parametrize("length", [1, 31, 64, 150])
@pytest.mark.parametrize("rest", [False, True])
def test_is_the_product_of_what_is_left(rest: bool, length: int) -> None:
    q, k, v = torch.randn(3, 2, 3, length, 8, dtype=torch.float64).requires_grad_().unbind()
    share = (q @ k.mT / 8**0.5).sigmoid().tril(-1)
    left = (1 - share).flip(-1).cumprod(-1).flip(-1)  # from each key to the query
    weights = share * torch.nn.functional.pad(left[..., 1:], (0, 1), value=1.0)
    assert torch.allclose(weights.sum(-1) + left[..., 0], torch.ones(length, dtype=torch.float64))
    expected = weights @ v + (left[..., :1] * v if rest else 0)
    for backend in ("reference", "blockwise"):
        found = scheme_attention(StickBreaking(rest), {}, q, k, v, backend=backend)
        assert torch.allclose(found, expected, atol=1e-12)
        slopes = (torch.autograd.grad(out.sin().sum(), [q, k, v], retain_graph=True) for out in (found, expected))
        assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(*slopes, strict=True))


def test_far_keys_of_a_long_text_keep_their_digits() -> None:
    """Where each key takes hardly anything, and beside keys that take all."""
    q, k = torch.ones(2, 1, 1, 2000, 4)
    k[..., 1900:, :] = -8.0
    k[..., :10, :] = 20.0
    v = torch.randn(1, 1, 2000, 4)
    exact = scheme_attention(StickBreaking(), {}, q.double(), k.double(), v.double())
    assert (scheme_attention(StickBreaking(), {}, q, k, v) - exact).abs().max() < 1e-5
