"""PaTH over several blocks: against products token by token, by windows and queries that begin within a block."""

import pytest
import torch
from torch import Tensor

from poslab.attention import scheme_attention
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.combined import Combined
from poslab.positions.layers import Entry, Layers
from poslab.positions.path import PaTH
from poslab.positions.rope import RoPE
from poslab.positions.t5 import T5

LENGTH, SHAPE = 300, ModelShape(context_length=300, embed_dim=24, num_layers=1, num_heads=2)


def inputs(scheme: PositionScheme) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return tables that can be felt, queries, keys and values (3, B, H, T, Dh), and x (B, T, D)."""
    tables = {name: table.double() for name, table in scheme.tables(SHAPE).items()}
    tables = {name: (table + torch.randn_like(table)).requires_grad_() for name, table in tables.items()}
    text = torch.randn(3, 2, 2, LENGTH, 12, dtype=torch.float64), torch.randn(2, LENGTH, 24, dtype=torch.float64)
    return tables, text[0], text[1]


def by_tokens(state: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return scores (B, H, T, T): keys go through one token after the other."""
    scores = torch.full((*q.shape[:3], LENGTH), -torch.inf, dtype=q.dtype)
    keys = k.clone()
    for i in range(LENGTH):
        w, b = state[:, :, i, None, :-1], state[:, :, i, None, -1:]
        keys[:, :, :i] -= b * w * (keys[:, :, :i] * w).sum(-1, keepdim=True)
        scores[:, :, i, : i + 1] = (q[:, :, i, None] * keys[:, :, : i + 1]).sum(-1) * q.shape[-1] ** -0.5
    return scores


@pytest.mark.parametrize("backend", ["reference", "blockwise"])
def test_products_token_by_token(backend: str) -> None:
    scheme = PaTH(rank=5)
    tables, (q, k, v), x = inputs(scheme)
    expected = by_tokens(scheme.token_state(tables, 0, x), q, k).softmax(-1) @ v
    assert torch.allclose(scheme_attention(scheme, tables, q, k, v, x=x, backend=backend), expected, atol=1e-12)


@pytest.mark.parametrize(
    "scheme", [Combined(PaTH(), Layers((Entry(RoPE(), 90),))), Combined(T5(), PaTH())], ids=["window", "bias"]
)
def test_tiles_that_begin_within_a_block(scheme: PositionScheme) -> None:
    tables, (q, k, v), x = inputs(scheme)
    results = []
    for backend in ("reference", "blockwise"):
        out = scheme_attention(scheme, tables, q, k, v, x=x, backend=backend)
        results.append([out, *torch.autograd.grad(out.sin().sum(), list(tables.values()))])
    assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(*results, strict=True))
