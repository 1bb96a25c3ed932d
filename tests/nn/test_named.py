"""Named schemes: equal to transformers' T5, Bloom and Llama, with their weights and settings."""

from collections.abc import Callable

import pytest
import torch
from common import moved
from refusals import refused
from torch import nn
from torch.nn import functional as F

import poslab.nn
from poslab.errors import SettingError
from poslab.nn import ALiBi, Attention, Cope, Fire, Kerple, Position, Rotary, Shaw, T5Bias
from poslab.positions.t5 import T5

transformers = pytest.importorskip("transformers")

H, DH, T = 6, 8, 200


@pytest.mark.parametrize("decoder", [True, False])
def test_t5_is_that_of_transformers(decoder: bool) -> None:
    """From its attention, its embedding, its weight and its state dict; also for a cache's last queries."""
    from transformers.models.t5.modeling_t5 import T5Attention

    sizes = {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 50}
    config = transformers.T5Config(num_heads=H, d_kv=DH, d_model=H * DH, is_decoder=decoder, **sizes)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    weight = theirs.state_dict()["relative_attention_bias.weight"]
    by_weight = {"bidirectional": not decoder, "max_distance": 50}
    for bias in (
        T5Bias.from_hf(theirs),
        T5Bias.from_hf(theirs.relative_attention_bias, **by_weight),
        T5Bias.from_hf(weight, **by_weight),
    ):
        for queries in (T, 3):
            expected = theirs.compute_bias(queries, T, past_seen_tokens=T - queries)
            assert torch.equal(bias(queries, T, causal=False), expected)
            hidden = torch.ones(queries, T, dtype=torch.bool).triu(T - queries + 1)
            masked = expected.masked_fill(hidden, -torch.inf) if decoder else expected
            assert torch.equal(bias(queries, T), masked)


def test_a_t5_without_a_table() -> None:
    for source, problem in ((nn.Linear(2, 3).bias, "source=Parameter"), (nn.Identity(), "source=Identity")):
        with pytest.raises(SettingError, match=f"^{problem}: .*relative_attention_bias"):
            T5Bias.from_hf(source, bidirectional=True)
    with refused("bidirectional", "null"):
        T5Bias.from_hf(torch.zeros(32, H))


@pytest.mark.parametrize("heads", [1, 4, 6, 12, 20])
def test_alibi_is_that_of_transformers(heads: int) -> None:
    """Its bias of each key, less a number of each query that no softmax notices; for a cache, too."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    config = transformers.BloomConfig(n_head=heads, hidden_size=heads * DH)
    theirs = build_alibi_tensor(torch.ones(1, T), heads, torch.float32)  # (H, 1, T)
    for bias in (ALiBi.from_hf(config), ALiBi.from_hf(heads)):
        for queries in (T, 3):
            of_query = theirs[:, 0, T - queries :, None]
            found, expected = bias(queries, T, causal=False)[0], theirs - of_query
            seen = torch.ones(queries, T, dtype=torch.bool).tril(T - queries)
            assert torch.allclose(found[:, seen], expected[:, seen], atol=1e-4)
    assert not [*bias.parameters()]


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    ],
    ids=lambda scaling: scaling["rope_type"],
)
def test_rotary_is_that_of_transformers(scaling: dict) -> None:
    """Llama's halves; adjacent pairs are the same but for the order of channels; positions of each row are its own."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    head_dim = 16
    sizes = {"hidden_size": H * head_dim, "num_attention_heads": H, "max_position_embeddings": 256}
    config = transformers.LlamaConfig(**sizes, rope_parameters={"rope_theta": 500.0} | scaling)
    q, k = torch.randn(2, H, T, head_dim), torch.randn(2, 2, T, head_dim)
    positions = torch.stack([torch.arange(T), torch.arange(T) + 40])
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, positions))
    kind = scaling["rope_type"].replace("default", "none")
    settings = {"base": 500.0, "scaling": kind, "factor": scaling.get("factor", 1.0), "original_context": 64}
    found = Rotary(head_dim, **settings)(q, k, q_positions=positions, k_positions=positions)
    assert all(torch.allclose(mine, their, atol=1e-4) for mine, their in zip(found, theirs, strict=True))
    adjacent = torch.arange(head_dim).view(2, -1).T.flatten()  # channels (d, d + n / 2) side by side
    of_pairs = Rotary(head_dim, pairs="adjacent", **settings)
    turned, _ = of_pairs(q[..., adjacent], k[..., adjacent], q_positions=positions)
    assert torch.allclose(turned, found[0][..., adjacent], atol=1e-5)


def test_rotary_counts_the_last_queries_of_a_cache() -> None:
    rotary = Rotary(DH, heads=H)
    q, k = torch.randn(2, 1, H, T, DH).unbind()
    whole, last = rotary(q, k)[0], rotary(q[:, :, -3:], k)[0]
    assert torch.allclose(last, whole[:, :, -3:])
    with refused("pairs", "even", "halves", "adjacent"):
        Rotary(DH, pairs="even")
    with pytest.raises(SettingError, match=r"give q.transpose\(1, 2\)"):
        rotary(q.transpose(1, 2), k.transpose(1, 2))


@pytest.mark.parametrize("named", [T5Bias, Kerple, Fire, Shaw, Cope])
def test_tables_train(named: type) -> None:
    """Through attention of torch where the module is a bias, and through `Attention`: to the same gradients."""
    position = moved(named(H, DH).double(), 0.1)
    q, k, v = torch.randn(3, 2, H, 20, DH, dtype=torch.float64).unbind()
    tables = [*position.parameters()]
    gradients = torch.autograd.grad(Attention(position)(q, k, v).square().sum(), tables)
    assert all(gradient.any() for gradient in gradients)
    if named in (Shaw, Cope):
        assert sorted(position.state_dict()) == sorted(f"tables.{name}" for name in position.own_tables)
        return
    by_torch = F.scaled_dot_product_attention(q, k, v, attn_mask=position(20))
    for mine, theirs in zip(gradients, torch.autograd.grad(by_torch.square().sum(), tables), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "option", "value", "names"),
    [
        (lambda: Attention("t5"), "position", "t5", ["Attention(Position("]),
        (lambda: Attention(T5()), "position", "T5", ["Attention(Position("]),
        (lambda: Position("t5", heads=4, head_dim=8), "scheme", "t5", ["poslab.positions"]),
        (lambda: Position(T5, heads=4, head_dim=8), "scheme", "type", ["poslab.positions"]),
        (lambda: Position(T5(), n_head=4, head_dim=8), "n_head", 4, ["mean heads?"]),
        (lambda: Position(T5(), head_dim=8), "heads", "", ["Position"]),
        (lambda: ALiBi(), "heads", "", ["ALiBi"]),
        (lambda: ALiBi(num_heads=4), "num_heads", 4, ["mean heads?"]),
        (lambda: T5Bias(heads=4, n_buckets=16), "n_buckets", 16, ["mean num_buckets?"]),
        (lambda: Shaw(4, 8, num_layers=2), "num_layers", 2, ["mean layers?"]),
        (lambda: Rotary(8, theta=500.0), "theta", 500, ["mean base?"]),
        (lambda: ALiBi(heads=4)(torch.ones(1, 4, 3, 8), torch.ones(1, 4, 3, 8)), "query_length", None, ["Attention("]),
    ],
)
def test_a_call_that_can_not_be_leads_to_one_that_can(
    call: Callable[[], object], option: str, value: object, names: list[str]
) -> None:
    with refused(option, value, *names):
        call()


def test_schemes_under_their_own_names_lead_to_the_modules_that_there_are() -> None:
    for name, meant in {"RoPE": "Rotary", "FIRE": "Fire", "T5": "T5Bias", "Alibi": "ALiBi", "CoPE": "Cope"}.items():
        with pytest.raises(AttributeError, match=f"{name}.* {meant}"):
            getattr(poslab.nn, name)
    assert not hasattr(poslab.nn, "nothing_of_the_kind")
