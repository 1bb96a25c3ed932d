"""Forward mode and second derivatives of attention by every scheme: those of the dense formula."""

import pytest
import torch
from common import SOUND, make_scheme, moved
from torch import Tensor

from poslab.nn import Attention, Position

H, DH, T = 4, 8, 12
every_scheme = pytest.mark.parametrize("name", SOUND)


def make_attentions(name: str, length: int = T) -> tuple[Attention, Attention, tuple[Tensor, ...], Tensor]:
    """Return attention by the chosen and by the dense backend, q, k, v, and x."""
    position = Position(make_scheme(name), heads=H, head_dim=DH, context_length=length)
    position = moved(position.double(), 0.3)
    qkv = torch.randn(3, 2, H, length, DH, dtype=torch.float64).unbind()
    dense = Attention(position, backend="reference")
    return Attention(position), dense, qkv, torch.randn(2, length, H * DH, dtype=torch.float64)


@every_scheme
@pytest.mark.parametrize("length", [T, 260])  # the latter beyond what dense attention is chosen for
def test_forward_mode(name: str, length: int) -> None:
    """Within torch.func, and by dual numbers without it."""
    attention, dense, (q, k, v), x = make_attentions(name, length)
    tangent = torch.randn_like(q)
    with torch.no_grad():
        _, found = torch.func.jvp(lambda q: attention(q, k, v, x=x), (q,), (tangent,))
        _, expected = torch.func.jvp(lambda q: dense(q, k, v, x=x), (q,), (tangent,))
        torch.testing.assert_close(found, expected)
        with torch.autograd.forward_ad.dual_level():
            out = attention(torch.autograd.forward_ad.make_dual(q, tangent), k, v, x=x)
            torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(out).tangent, expected)
        step = 1e-6
        ahead, back = (dense(q + sign * step * tangent, k, v, x=x) for sign in (1, -1))
    torch.testing.assert_close(found, (ahead - back) / (2 * step), rtol=1e-4, atol=1e-4)


@every_scheme
def test_second_derivatives(name: str) -> None:
    """By create_graph, of queries, keys, values and tables; and torch.func's hessian."""
    attention, dense, (q, k, v), x = make_attentions(name)
    inputs = [y.requires_grad_() for y in (q, k, v)] + list(attention.parameters())

    def second(attend: Attention) -> list[Tensor]:
        gradients = torch.autograd.grad(
            attend(q, k, v, x=x).square().sum(), inputs, create_graph=True, materialize_grads=True, allow_unused=True
        )
        total = sum(gradient.sin().sum() for gradient in gradients)
        return list(torch.autograd.grad(total, inputs, materialize_grads=True, allow_unused=True))

    torch.testing.assert_close(second(attention), second(dense))
    k, v = k.detach(), v.detach()
    hessians = [
        torch.func.hessian(lambda row, f=attend: f(row.expand(2, H, 1, DH), k, v, x=x).sum())(q[0, 0, 0].detach())
        for attend in (attention, dense)
    ]
    torch.testing.assert_close(*hessians)
