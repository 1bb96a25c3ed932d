"""Attention that may go to nobody: transformers' GptOss, whose number is learned, and what is left of each row."""

from types import SimpleNamespace

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.positions import ModelShape
from poslab.positions.nope import NoPE
from poslab.positions.sink import Sink


def test_equals_gpt_oss() -> None:
    library = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss", reason="needs the extra 'bench'")
    q, k, v = torch.randn(3, 2, 4, 150, 8, dtype=torch.float64).requires_grad_().unbind()
    sinks = torch.randn(4, dtype=torch.float64).requires_grad_()
    hidden = torch.full((150, 150), -torch.inf, dtype=torch.float64).triu(1)
    module = SimpleNamespace(sinks=sinks, num_key_value_groups=1, training=False)
    expected = library.eager_attention_forward(module, q, k, v, hidden, 8**-0.5)[0].transpose(1, 2)
    for backend in ("reference", "auto"):
        found = scheme_attention(Sink(), {"sink": sinks[None]}, q, k, v, backend=backend)
        assert torch.allclose(found, expected, atol=1e-12)
        slopes = (
            torch.autograd.grad(out.sin().sum(), [q, k, v, sinks], retain_graph=True) for out in (found, expected)
        )
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*slopes, strict=True))


def test_off_by_one_is_a_key_of_score_0() -> None:
    assert Sink(learned=False).tables(ModelShape(9, 8, 1, 2)) == {}
    assert Sink(learned=False, of=NoPE()).share_layers is NoPE().share_layers
    q = torch.zeros(1, 2, 9, 4)
    out = scheme_attention(Sink(learned=False), {}, q, q, torch.ones_like(q))  # all scores are 0
    seen = torch.arange(1, 10)
    assert torch.allclose(out, (seen / (seen + 1))[:, None].expand(9, 4))
