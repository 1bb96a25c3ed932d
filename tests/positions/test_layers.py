"""Patterns over layers: attention of models that have one, tables of the layers that use them, and what is said."""

from typing import Any

import pytest
import torch
from oracles import assert_is_the_formula
from refusals import refused
from strong_models import some_tokens, strong_model
from torch import Tensor

from poslab import GPT
from poslab.attention import scheme_attention
from poslab.contract.checks import CHECKS
from poslab.contract.trial import outcome
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.absolute import Absolute
from poslab.positions.base import knows_nothing
from poslab.positions.canon import Canon
from poslab.positions.combined import Combined
from poslab.positions.cope import CoPE
from poslab.positions.dape import DAPE
from poslab.positions.fire import FIRE
from poslab.positions.forgetting import Forgetting
from poslab.positions.layers import Entry, Layers
from poslab.positions.nope import NoPE
from poslab.positions.path import PaTH
from poslab.positions.randomized import Randomized
from poslab.positions.rope import RoPE
from poslab.positions.scaled import Scaled
from poslab.positions.shaw import Shaw
from poslab.positions.sink import Sink
from poslab.positions.stick_breaking import StickBreaking
from poslab.positions.t5 import T5

SHAPE = ModelShape(context_length=40, embed_dim=24, num_layers=5, num_heads=2)
LENGTH = 20


def pattern(*entries: PositionScheme | Entry) -> Layers:
    return Layers(tuple(entry if isinstance(entry, Entry) else Entry(entry) for entry in entries))


SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "vocab_size": 7}
LLAMA4 = {"attention_chunk_size": LENGTH, "use_qk_norm": False, "floor_scale": 3, "attn_scale": 0.5, "moe_layers": []}
# Model of transformers, its settings, and the pattern of its layers, of which there are two more than entries.
FAMILIES: dict[str, tuple[str, dict[str, Any], Layers]] = {
    "smollm3": (
        "SmolLM3",
        {"pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        pattern(*[RoPE(500.0)] * 3, NoPE()),
    ),
    "llama4": (  # a text of no more than a chunk
        "Llama4Text",
        LLAMA4 | {"intermediate_size_mlp": 16, "pad_token_id": 0},
        pattern(*[RoPE(500000.0, interleaved=True)] * 3, Scaled(NoPE(), kind="llama4", amount=0.5, step=3)),
    ),
    "gemma3": (
        "Gemma3Text",
        {"sliding_window": 6, "query_pre_attn_scalar": 8},
        pattern(*[Entry(RoPE(10000.0), 6)] * 5, RoPE(1000000.0)),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_attention_of_every_layer_of(family: str) -> None:
    """Its own masks, rotations and projections, in a pass of the whole model."""
    transformers = pytest.importorskip("transformers", reason="needs transformers, in the extra 'bench'")
    kind, settings, scheme = FAMILIES[family]
    depth = len(scheme.layers) + 2
    config = getattr(transformers, f"{kind}Config")(
        **SMALL | settings, intermediate_size=16, num_hidden_layers=depth, attn_implementation="eager"
    )
    model, seen = getattr(transformers, f"{kind}Model")(config).double().eval(), []
    for block in model.layers:
        block.self_attn.register_forward_hook(
            lambda attention, _, given, out: seen.append((attention, given["hidden_states"], out[0])), with_kwargs=True
        )
    model(torch.randint(1, 7, (2, LENGTH)))
    assert len(seen) == depth
    for layer, (theirs, x, expected) in enumerate(seen):
        q, k, v = (
            part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        )
        if family == "gemma3":
            q, k = theirs.q_norm(q), theirs.k_norm(k)
        out = scheme_attention(scheme, {}, q, k, v, layer=layer, num_layers=depth)
        found = theirs.o_proj(out.transpose(1, 2).flatten(-2))
        assert torch.allclose(found, expected, atol=2e-6, rtol=1e-5), layer  # their angles are of float32


@pytest.mark.parametrize(
    ("scheme", "sizes"),
    [
        (pattern(Shaw(4), NoPE()), {"0_keys": (3, 5, 12), "0_values": (3, 5, 12)}),
        (pattern(NoPE(), Shaw(4)), {"1_keys": (2, 5, 12), "1_values": (2, 5, 12)}),
        (pattern(T5(8, 16), Entry(T5(8, 16), 7), NoPE()), {"0_bias": (8, 2)}),
        (pattern(T5(8, 16), Entry(T5(8, 16), 7)), {"bias": (8, 2)}),
        (pattern(T5(8, 16), T5(8, 16, scale=2.0)), {"0_bias": (8, 2), "1_bias": (8, 2)}),
        (pattern(T5(8, 16), *[NoPE()] * 5, T5(4, 8)), {"0_bias": (8, 2)}),  # seven for five layers
        (pattern(RoPE(), NoPE()), {}),
    ],
)
def test_tables_are_those_of_the_layers_that_use_them(scheme: Layers, sizes: dict[str, tuple[int, ...]]) -> None:
    assert {name: tuple(table.shape) for name, table in scheme.tables(SHAPE).items()} == sizes
    model = GPT(scheme, vocab_size=11, context_length=40, embed_dim=24, num_layers=5, num_heads=2)
    model(some_tokens(1, 20) % 11).sum().backward()
    assert all(parameter.grad is not None for parameter in model.position_tables.parameters())


def test_a_layer_is_its_scheme_s_own() -> None:
    """Layers 1 and 3 of the pattern are the first two of a model of its own."""
    scheme, shaw = pattern(RoPE(), Shaw(4)), Shaw(4)
    tables = {name: torch.randn_like(table) for name, table in scheme.tables(SHAPE).items()}
    own = {name.removeprefix("1_"): table for name, table in tables.items()}
    q, k, v = torch.randn(3, 1, 2, 9, 12)
    for layer, rank in ((1, 0), (3, 1)):
        found = scheme_attention(scheme, tables, q, k, v, layer=layer, num_layers=5)
        assert torch.equal(found, scheme_attention(shaw, own, q, k, v, layer=rank, num_layers=2))
    rotated = scheme_attention(RoPE(), {}, q, k, v)
    assert torch.equal(scheme_attention(scheme, tables, q, k, v, layer=2, num_layers=5), rotated)


@pytest.mark.parametrize(
    "scheme",
    [
        pattern(FIRE(), CoPE(), Entry(Forgetting(), 9)),
        pattern(Entry(pattern(Shaw(4), T5())), NoPE()),
        Combined(Forgetting(), pattern(Entry(NoPE(), 9), PaTH(rank=2), Canon(NoPE(), 3))),
        Sink(pattern(PaTH(rank=2), Forgetting())),
    ],
    ids=["tiles and a bias", "a pattern in a pattern", "beside token states", "with a null score"],
)
def test_any_schemes_in_any_layers(scheme: PositionScheme) -> None:
    for part in ("hooks", "pictures", "formula of the paper", "kernels", "cache", "memory"):
        assert outcome(CHECKS[part], scheme)[0] == "ok", part


def test_each_layer_takes_the_kernel_of_its_scheme() -> None:
    scheme = pattern(NoPE(), CoPE(), Forgetting(), Entry(RoPE(), 7), T5())
    found = strong_model(scheme, num_layers=5, embed_dim=24, context_length=40).attention_parts()
    assert found == [set(), {"pairwise"}, {"key_bias"}, {"window"}, {"bias", "bias that isn't linear"}]
    assert [scheme.overrides("mix", layer) for layer in range(5)] == [False] * 5
    assert knows_nothing(pattern(NoPE()))
    assert not knows_nothing(pattern(Entry(NoPE(), 7)))


def test_what_belongs_to_no_layer_happens_once() -> None:
    scheme = pattern(Absolute(), NoPE(), Entry(Absolute(), 7), Canon(NoPE(), 3), Randomized(RoPE(), 90))
    tables: dict[str, Tensor] = scheme.tables(SHAPE)
    x, positions = torch.randn(1, 9, 24), torch.arange(9)
    (table,) = (table for name, table in tables.items() if name.endswith("position"))
    assert torch.equal(scheme.embed(tables, x, positions), x + table[:9])
    generator = torch.Generator().manual_seed(1)
    drawn = scheme.sample(SHAPE, 9, torch.Generator().manual_seed(1))
    assert torch.equal(drawn, Randomized(RoPE(), 90).sample(SHAPE, 9, generator))
    assert scheme.samples_in_evaluation
    assert scheme.mixed_tokens == 3


@pytest.mark.parametrize("scheme", [Scaled(NoPE()), StickBreaking()])
def test_the_formula_of_a_scheme_sees_what_the_window_shows(scheme: PositionScheme) -> None:
    assert_is_the_formula(pattern(Entry(scheme, 6)))


def test_states_of_different_layers_are_not_shared() -> None:
    pattern(Forgetting(), PaTH()).check(ModelShape(40, 24, 2, 2, head_dim=8))
    with refused("head_dim", "8", "embed_dim", "num_heads"):
        Combined(Forgetting(), PaTH()).check(ModelShape(40, 24, 2, 2, head_dim=8))


@pytest.mark.parametrize(("scheme", "part"), [(DAPE(), "pairwise"), (Forgetting(gate="cable"), "pairwise"),
                                              (Forgetting(), "key_bias")])  # fmt: skip
def test_what_enters_is_what_hooks_return(scheme: PositionScheme, part: str) -> None:
    parts = GPT(scheme, vocab_size=9, context_length=8, embed_dim=24, num_layers=1, num_heads=2).attention_parts()
    assert {"pairwise", "key_bias"} & parts[0] == {part}


def test_what_can_not_be() -> None:
    with refused("layers.1", "Absolute", "1"):
        pattern(NoPE(), Absolute()).check(ModelShape(40, 24, 1, 2))
    with refused("layers.1.fraction", "0.1"):
        pattern(NoPE(), RoPE(fraction=0.1)).check(SHAPE)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (pattern(Entry(RoPE(), 39), NoPE()), []),
        (pattern(NoPE(), RoPE(factor=4.0)), ["pos.layers.1.factor=4.0 does nothing without pos.layers.1.scaling"]),
        (pattern(*[NoPE()] * 6), ["pos.layers.5: with 5 layers, none has it"]),
        (pattern(NoPE(), Entry(NoPE(), 40)), ["pos.layers.1.window=40 hides nothing within a context of 40"]),
    ],
)
def test_warnings(scheme: Layers, said: list[str]) -> None:
    scheme.check(SHAPE)
    assert scheme.warnings(SHAPE) == said
