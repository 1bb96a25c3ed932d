"""Rotary positions: far along a text, scalings, the layers without, the libraries' results, angles once per pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from poslab import GPT
from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme, rope, rotary, xpos
from poslab.positions.layers import Entry, Layers
from poslab.positions.nope import NoPE
from poslab.positions.rope import RoPE
from poslab.positions.xpos import XPos

NEEDS = "needs transformers, in the extra 'bench'"
SCALED = [
    {"scaling": "linear", "factor": 4.0},
    {"scaling": "ntk", "factor": 3.0},
    {"scaling": "yarn", "factor": 4.0, "original_context": 4096},
    {"scaling": "yarn", "factor": 16.0, "original_context": 64, "base": 500.0},
    {"scaling": "llama3", "factor": 8.0, "original_context": 8192, "base": 500000.0},
    {"scaling": "llama3", "factor": 2.0, "original_context": 64},
]
SHAPE = ModelShape(context_length=256, embed_dim=32, num_layers=4, num_heads=2)


@pytest.mark.parametrize("scheme", [RoPE(), RoPE(fraction=0.5, interleaved=True), RoPE(scaling="yarn", factor=4.0)])
def test_only_distances_count_however_far(scheme: RoPE) -> None:
    """Angles are computed in double precision, for float32 at position 100,000."""
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    here, there = (
        scheme_attention(scheme, {}, q, k, v, positions=torch.arange(start, start + 9)) for start in (0, 100_000)
    )
    assert torch.allclose(here, there, atol=2e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradients(interleaved: bool) -> None:
    """Gradients of both orders, also where x is a slice of something larger, as queries are."""
    positions = torch.arange(3)
    whole = torch.randn(1, 3, 2 * 14, dtype=torch.float64, requires_grad=True)

    def turned(whole: Tensor) -> Tensor:
        x = whole.unflatten(-1, (4, 7))[:, :, :2].transpose(1, 2)  # (1, 2, 3, 7), not contiguous
        return RoPE(fraction=0.9, interleaved=interleaved).rotate({}, x, positions)

    assert torch.autograd.gradcheck(turned, (whole,))
    assert torch.autograd.gradgradcheck(lambda x: turned(x) ** 2, (whole,))


def test_compiled() -> None:
    scheme, positions = RoPE(fraction=0.5, interleaved=True), torch.arange(5)
    x = torch.randn(1, 2, 5, 16, requires_grad=True)
    compiled = torch.compile(lambda x: scheme.rotate({}, x, positions), fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(scheme.rotate({}, x, positions).square()[..., :3].sum(), x)
    (found,) = torch.autograd.grad(compiled(x).square()[..., :3].sum(), x)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("settings", [{"base": 500.0}, *SCALED])
def test_llama_of_transformers(settings: dict[str, Any]) -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason=NEEDS)
    scheme, length = RoPE(**settings), 128
    kinds = {"none": "default", "ntk": "dynamic"}
    parameters = {
        "rope_type": kinds.get(scheme.scaling, scheme.scaling),
        "rope_theta": scheme.base,
        "factor": scheme.factor,
        "original_max_position_embeddings": scheme.original_context,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    # Its dynamic NTK at a text of twice its maximum, with factor 2, is 2 * 2 - (2 - 1) = 3 times.
    parameters |= {"factor": 2.0} if scheme.scaling == "ntk" else {}
    config = llama.LlamaConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=length // 2, rope_parameters=parameters
    )
    q, k = torch.randn(2, 1, 2, length, 32)
    positions = torch.arange(length)
    expected = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, positions[None]))
    found = [scheme.rotate({}, x, positions) for x in (q, k)]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=3e-5)  # their angles are float32


@pytest.mark.parametrize("still", [0.0, 0.25, 0.5, 0.99])
def test_slowest_pairs_stand_still_as_in_proportional_rope_of_transformers(still: float) -> None:
    library = pytest.importorskip("transformers.modeling_rope_utils", reason=NEEDS)
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason=NEEDS)
    parameters = {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 1 - still}
    config = llama.LlamaConfig(hidden_size=64 * 200, num_attention_heads=64, rope_parameters=parameters)
    expected, _ = library.ROPE_INIT_FUNCTIONS["proportional"](config)
    found = torch.tensor(RoPE(base=500.0, still=still).frequencies(200))
    assert torch.allclose(found, expected, rtol=1e-5, atol=0)
    assert (found == 0).sum() == round(100 * still)


def test_half_truncated_as_in_modded_nanogpt() -> None:
    half = torch.logspace(0, -10, 16, base=2.0)  # from 1 to 1 / 1024, of 64 channels
    found = torch.tensor(RoPE(base=1024.0 ** (32 / 15), still=0.5).frequencies(64))
    assert torch.allclose(found, torch.cat([half, torch.zeros(16)]), rtol=1e-5)


def test_pairs_without_a_whole_turn_in_the_context_stand_still() -> None:
    scheme = RoPE(still="context", original_context=100, scaling="linear", factor=2.0)
    found, moving = scheme.frequencies(32), RoPE(scaling="linear", factor=2.0).frequencies(32)
    assert found == [f if 6.2832 / (2 * f) <= 100 else 0.0 for f in moving]  # by the wavelength before scaling
    assert 0.0 in found
    assert scheme.hf_equivalent({}, SHAPE) is None
    shown = scheme.explain({}, SHAPE, [])["wavelengths"].x
    assert shown == [pair for pair, f in enumerate(scheme.frequencies(SHAPE.head_dim)) if f]


def test_gpt_j_of_transformers() -> None:
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj", reason=NEEDS)
    x, length = torch.randn(2, 50, 4, 32), 50  # (B, T, H, Dh)
    sin, cos = gptj.create_sinusoidal_positions(length, 16).chunk(2, dim=-1)
    turned = gptj.apply_rotary_pos_emb(x[..., :16], sin[None], cos[None])
    expected = torch.cat([turned, x[..., 16:]], dim=-1).transpose(1, 2)
    found = RoPE(fraction=0.5, interleaved=True).rotate({}, x.transpose(1, 2), torch.arange(length))
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"fraction": 0.1}, "fraction"),  # of 16 channels
        ({"scaling": "ntk", "factor": 2.0, "fraction": 0.125}, "scaling"),
        ({"still": 0.9}, "still"),
        ({"still": "context", "original_context": 6}, "still"),
        ({"still": 1.0}, "still"),
        ({"still": "contxt"}, "still"),
    ],
)
def test_what_can_not_be(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(SettingError) as refusal:
        RoPE(**settings).check(SHAPE)
    assert refusal.value.option == option


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (RoPE(), None),
        (RoPE(factor=4.0), "pos.factor=4.0 does nothing without"),
        (RoPE(scaling="linear"), "pos.scaling=linear does nothing with pos.factor=1"),
        (RoPE(scaling="linear", factor=4.0, original_context=7), None),
        (RoPE(scaling="yarn", factor=4.0), None),  # evaluated beyond its context
        (RoPE(scaling="yarn", factor=4.0, original_context=64), None),  # trained on
        (RoPE(scaling="llama3", factor=4.0, original_context=100), "pos.original_context=100: this model's context"),
        (RoPE(still="context"), None),
        (
            RoPE(still="context", original_context=100),
            "pos.original_context=100: this model's context is 256, neither that nor pos.factor=1.0 times as much; "
            "pos.still and pos.scaling need the length of training there",
        ),
    ],
)
def test_warnings(scheme: RoPE, said: str | None) -> None:
    scheme.check(SHAPE)
    warnings = scheme.warnings(SHAPE)
    assert [w.startswith(said) for w in warnings] == ([True] if said else []), warnings


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The positions whose angles were computed so far."""
    calls: list[Tensor] = []

    def angles(positions: Tensor, of: Tensor) -> Tensor:
        calls.append(positions.clone())
        return rotary.angles(positions, of)

    for module in (rope, xpos):
        monkeypatch.setattr(module, "angles", angles)
    return calls


@pytest.mark.parametrize(
    ("scheme", "each"),
    [(RoPE(), 1), (Layers((Entry(RoPE(), 3), Entry(NoPE()))), 1), (XPos(), 2)],  # and what fades
)
@pytest.mark.parametrize("given", [None, torch.tensor([[0, 1, 2], [5, 6, 7]])], ids=["counted", "by row"])
def test_angles_are_computed_once_per_pass(
    scheme: PositionScheme, each: int, given: Tensor | None, computed: list[Tensor]
) -> None:
    model = GPT(scheme, vocab_size=11, context_length=8, embed_dim=8, num_layers=4, num_heads=2)
    computed.clear()  # the hooks were tried
    for passes in (1, 2, 3):
        model(torch.zeros(2, 3, dtype=torch.long), positions=given).sum().backward()
        assert len(computed) == each * passes


def test_other_positions_types_and_schemes_have_angles_of_their_own(computed: list[Tensor]) -> None:
    x, positions = torch.randn(1, 2, 4, 8), torch.arange(4)
    ways = [(RoPE(), x), (RoPE(base=50.0), x), (RoPE(), x.double()), (RoPE(), x[..., :6])]
    for _ in range(2):
        for scheme, of in ways:
            out = scheme.rotate({}, of, positions)
            assert out.dtype == of.dtype
            assert torch.allclose(out, scheme.rotate({}, of, positions.clone()), atol=0)
    assert len(computed) == len(ways) + 2 * len(ways)  # the clones' are new each time
    assert torch.equal(RoPE().rotate({}, x, positions + 3), RoPE().rotate({}, x, torch.arange(3, 7)))


def test_positions_changed_in_place_are_noticed() -> None:
    x, positions = torch.randn(1, 2, 4, 8), torch.arange(4)
    before = RoPE().rotate({}, x, positions)
    positions += 5
    assert torch.equal(RoPE().rotate({}, x, positions), RoPE().rotate({}, x, torch.arange(5, 9)))
    assert not torch.equal(RoPE().rotate({}, x, positions), before)


def test_what_inference_mode_computes_is_not_trained_with() -> None:
    positions, x = torch.arange(4), torch.randn(1, 2, 4, 8, requires_grad=True)
    with torch.inference_mode():
        first = RoPE().rotate({}, x, positions)
        own = torch.arange(4)
        assert torch.equal(RoPE().rotate({}, x, own), first)
        own += 1
        assert not torch.equal(RoPE().rotate({}, x, own), first)
    RoPE().rotate({}, x, positions).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(("head_dim", "turning"), [(52, 30), (88, 30), (88, 60), (100, 58), (104, 60)])
def test_transformers_turns_as_many_channels(head_dim: int, turning: int) -> None:
    scheme = RoPE(fraction=turning / head_dim)
    equivalent = scheme.hf_equivalent({}, ModelShape(8, 2 * head_dim, 1, 2))
    assert equivalent is not None
    assert int(head_dim * equivalent.settings["rope_parameters"]["partial_rotary_factor"]) == turning
