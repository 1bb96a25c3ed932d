"""Scaled queries: how many keys a query sees, transformers' Llama 4, texts no longer than those of training."""

import pytest
import torch
from strong_models import some_tokens, strong_model

from poslab.attention import scheme_attention
from poslab.attention.reference import AttentionSpec
from poslab.positions import ModelShape
from poslab.positions.nope import NoPE
from poslab.positions.rope import RoPE
from poslab.positions.scaled import KINDS, Scaled


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 50])
@pytest.mark.parametrize("first_key", [None, torch.tensor([0, 2, 9])])
def test_keys_seen_are_those_of_the_mask(causal: bool, window: int | None, first_key: torch.Tensor | None) -> None:
    for offset in (0, 4, 7):
        spec = AttentionSpec(None, causal, offset, 1.0, window, first_key)
        assert torch.equal(spec.keys_seen(5, 9), spec.visible(5, 9).sum(-1)[:, 0])


def test_slopes_begin_at_a_mean_factor_of_1() -> None:
    shape = ModelShape(1024, 24, 3, 2)
    tables = Scaled().tables(shape)
    assert tables["scaled_slope"].allclose(torch.tensor(0.168), atol=5e-4)  # the paper's, for as many tokens
    factors = Scaled().query_scale(tables, shape, 1, torch.arange(1.0, 1025)[None])
    assert factors.mean().allclose(torch.tensor(1.0))


def test_equals_the_layers_of_llama_4_without_positions() -> None:
    llama = pytest.importorskip("transformers.models.llama4.modeling_llama4")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
    config = llama.Llama4TextConfig(
        **sizes, num_hidden_layers=2, no_rope_layers=[0, 0], attn_temperature_tuning=True, floor_scale=3, attn_scale=0.5
    )
    config._attn_implementation = "eager"
    theirs, x = llama.Llama4TextAttention(config, 1).double(), torch.randn(2, 20, 32, dtype=torch.float64)
    assert not theirs.use_rope
    hidden = torch.full((20, 20), -torch.inf, dtype=torch.float64).triu(1)
    expected, _ = theirs(x, (None, None), hidden[None, None])
    q, k, v = (part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (theirs.q_proj, theirs.k_proj, theirs.v_proj))
    out = scheme_attention(Scaled(NoPE(), kind="llama4", amount=0.5, step=3), {}, q, k, v)
    assert torch.allclose(theirs.o_proj(out.transpose(1, 2).flatten(-2)), expected, atol=1e-12)


def test_up_to_the_training_length_length_changes_nothing() -> None:
    model, tokens = strong_model("rope"), some_tokens(1, 80)
    plain = model(tokens)
    model.position.scheme = Scaled(RoPE(), kind="length")
    found = model(tokens)
    assert torch.equal(found[:, :40], plain[:, :40])
    assert not torch.allclose(found[:, 41:], plain[:, 41:], atol=1e-3)


def test_what_is_said_of_settings() -> None:
    shape = ModelShape(40, 24, 3, 2)
    assert Scaled(kind="llama4").warnings(shape) == ["pos.step=8192 scales nothing within a context of 40"]
    assert Scaled(kind="head", bias=True).warnings(shape) == ["pos.bias=true does nothing with pos.kind=head"]
    assert Scaled(step=8).warnings(shape) == ["pos.amount and pos.step do nothing with pos.kind=ssmax"]
    assert not any(Scaled(kind=kind, step=8 if kind == "llama4" else 8192).warnings(shape) for kind in KINDS)
