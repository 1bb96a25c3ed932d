"""Rotary positions with decay: the formula, x-transformers' result, far positions, half precision, where it ends."""

import pytest
import torch
from refusals import refused
from torch import Tensor

from poslab.attention import scheme_attention
from poslab.positions import ModelShape
from poslab.positions.xpos import XPos

SHAPE = ModelShape(context_length=64, embed_dim=32, num_layers=2, num_heads=2)


def products(scheme: XPos, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    """Return products of queries and keys as the hooks leave them, (B, H, T, T)."""
    return scheme.query({}, 0, q, positions) @ scheme.key({}, 0, k, positions).transpose(-1, -2)


@pytest.mark.parametrize("length", [50, 77])
def test_x_transformers(length: int) -> None:
    """Positions of x-transformers are centred in the middle of the text."""
    library = pytest.importorskip("x_transformers.x_transformers", reason="needs x-transformers, in the extra 'bench'")
    q, k = torch.randn(2, 2, 3, length, 32)
    positions = torch.arange(length)
    turns, scale = library.RotaryEmbedding(32, use_xpos=True, scale_base=64, base=1000.0)(positions)
    theirs = library.apply_rotary_pos_emb(q, turns, scale), library.apply_rotary_pos_emb(k, turns, scale**-1.0)
    found = products(XPos(base=1000.0, scale_base=64.0), q, k, positions)
    # In the rest of the square, which nobody sees, products grow.
    assert torch.allclose(found.tril(), (theirs[0] @ theirs[1].transpose(-1, -2)).tril(), atol=1e-4)


@pytest.mark.parametrize("start", [0, 4000, 32_768 - 300])
def test_up_to_its_last_position(start: int) -> None:
    """Outputs and gradients in float32 are those of the first positions in double precision."""
    parts = torch.randn(3, 1, 2, 300, 16)
    results = []
    for dtype, first in ((torch.float32, start), (torch.float64, 0)):
        q, k, v = leaves = [part.to(dtype).requires_grad_() for part in parts]
        out = scheme_attention(XPos(), {}, q, k, v, positions=torch.arange(first, first + 300))
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found.double(), expected, atol=1e-4)


def test_from_the_first_position_to_the_last() -> None:
    """The query at the end sees the key at the beginning: what is left of the product is that of slow pairs."""
    q, k = torch.randn(2, 1, 1, 2, 16)
    positions = torch.tensor([0, 32_767])
    found, expected = (products(XPos(), q.to(t), k.to(t), positions) for t in (torch.float32, torch.float64))
    assert torch.allclose(found.double().tril(), expected.tril(), atol=1e-6)


def test_where_it_ends() -> None:
    assert XPos().max_length(SHAPE) == 32_768
    with refused("scale_base", "0.5", "32", "64"):
        XPos(scale_base=0.5).check(SHAPE)
    with refused("num_heads", "8"):
        XPos().check(ModelShape(64, 8, 1, 8))
    assert XPos().warnings(SHAPE) == []
    assert "grows" in XPos().warnings(ModelShape(64, 32, 2, 2, causal=False))[0]


def test_picture_of_what_fades() -> None:
    """The factor of the first pair at a distance, by the paper's equation."""
    fading = XPos(scale_base=16.0).explain({}, SHAPE, [])["fading"]
    for distance, factor in zip(fading.x, fading.lines["pair 0"], strict=True):
        assert float(factor) == pytest.approx((0.4 / 1.4) ** (distance / 16.0), rel=1e-5)
