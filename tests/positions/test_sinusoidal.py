"""Sines and cosines added to the embeddings: the paper's formula, x-transformers' order, the scale of the tokens."""

import math

import pytest
import torch
from common import moved

from poslab import GPT
from poslab.positions.nope import NoPE
from poslab.positions.sinusoidal import Sinusoidal


@pytest.mark.parametrize("width", [8, 7])
def test_the_papers_formula(width: int) -> None:
    x, positions = torch.randn(2, 4, width, dtype=torch.float64), [0, 1, 9, 5000]
    found = Sinusoidal(base=100.0, amplitude=0.5).embed({}, x, torch.tensor(positions)) - x
    for t, position in enumerate(positions):
        for channel in range(width):
            angle = position / 100.0 ** (channel // 2 * 2 / width)
            expected = 0.5 * (math.cos(angle) if channel % 2 else math.sin(angle))
            assert found[:, t, channel].tolist() == pytest.approx([expected] * 2, abs=1e-12)


def test_signal_and_tokens_begin_alike() -> None:
    """Proportion as in the paper, after its factor of tokens: mean squares of 1/2 and 1, here times 0.02 squared."""
    model = GPT(Sinusoidal(), vocab_size=500, context_length=64, embed_dim=64, num_layers=1, num_heads=1)
    tokens = model.token_embedding.weight.square().mean()
    signal = model.pos.embed({}, torch.zeros(1, 64, 64), torch.arange(64)).square().mean()
    assert (signal / tokens).item() == pytest.approx(0.5, rel=0.02)


def test_without_an_order_a_model_that_sees_everything_is_blind() -> None:
    """NoPE knows the order of what a causal model has read, and none otherwise; sines always do."""
    tokens, swapped = torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([[2, 1, 3, 5, 4, 6]])
    for scheme, causal, knows in ((NoPE(), True, True), (NoPE(), False, False), (Sinusoidal(), False, True)):
        torch.manual_seed(0)
        model = GPT(scheme, vocab_size=9, context_length=6, embed_dim=16, num_layers=2, num_heads=2, causal=causal)
        model = moved(model.double().eval(), 0.3)
        same = torch.allclose(model(tokens)[0, -1], model(swapped)[0, -1], atol=1e-9)
        assert same != knows
        assert bool(scheme.warnings(model.shape)) != knows
