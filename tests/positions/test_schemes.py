"""The contract that every scheme in configs/pos keeps. A new yaml is found by itself.

A correct scheme passes whatever it is: bounded or not, with angles in float32, with bends in its curves, with a bias
that hides all but the nearest tokens, or with no position at all.
"""

import dataclasses
from functools import partial

import pytest
import torch
from common import SCHEMES, VARIANTS, make_scheme, moved
from omegaconf import OmegaConf
from strong_models import OTHERS, SIZES, some_tokens
from torch import Tensor

from poslab import GPT
from poslab.attention import PositionIds, SchemeLayer, scheme_attention
from poslab.config.files import CONFIGS
from poslab.contract.checks import CHECKS
from poslab.contract.trial import outcome
from poslab.errors import UserError
from poslab.positions import ModelShape, PositionScheme

SHAPE = ModelShape(40, 24, 3, 2)
LONG = 300  # of more than two blocks of the kernels, which have 128 queries
TRUNK = 61 * 24 + 3 * (12 * 24**2 + 13 * 24) + 2 * 24  # embedding, blocks, final norm

every_scheme = pytest.mark.parametrize("name", SCHEMES)
every_variant = pytest.mark.parametrize("name", [*SCHEMES, *VARIANTS])  # for what settings may change


def make_model(name: str, seed: int = 0, **sizes: object) -> GPT:
    torch.manual_seed(seed)
    return GPT(make_scheme(name), **({"dropout": 0.0} | SIZES | sizes))


def strong(model: GPT) -> GPT:
    """Make weights large enough for position to matter, in double precision."""
    return moved(model, 0.3).double().eval()


@every_scheme
def test_yaml_lists_every_setting_with_its_default(name: str) -> None:
    yaml = OmegaConf.to_container(OmegaConf.load(CONFIGS / "pos" / f"{name}.yaml"))
    scheme = make_scheme(name)
    assert {"_target_", *(f.name for f in dataclasses.fields(scheme))} == set(yaml)
    assert type(scheme)() in map(make_scheme, SCHEMES)  # one of its yamls has the defaults of the class


@pytest.mark.parametrize("name", [*SCHEMES, *VARIANTS, *sorted(OTHERS.keys() - {"none", "rotary"})])
@pytest.mark.parametrize("part", CHECKS)
def test_the_contract(name: str, part: str) -> None:
    scheme = OTHERS[name]() if name in OTHERS else make_scheme(name)
    assert GPT(scheme, **SIZES)  # or nothing would be tried
    result, words = outcome(CHECKS[part], scheme)
    assert result != "differs", words


@every_variant
def test_a_token_is_noticed_by_those_after_it(name: str) -> None:
    model = strong(make_model(name, context_length=155))
    for first, length in ((25, 40), (140, 155)):
        tokens = some_tokens(2, length)
        changed = torch.cat([tokens[:, :first], (tokens[:, first:] + 1) % SIZES["vocab_size"]], dim=1)
        assert (model(tokens) - model(changed))[:, first:].abs().min(dim=-1).values.max() > 1e-3


def one_layer(scheme: PositionScheme, tables: dict[str, Tensor], x: Tensor, positions: Tensor) -> Tensor:
    """Return attention by the scheme's hooks and nothing else, (B, H, T, Dh), of x (B, T, D)."""
    q, v = (of.unflatten(-1, (2, 12)).transpose(1, 2) for of in (scheme.embed(tables, x, positions), x))
    position_ids = PositionIds(positions)
    terms = scheme.relative(tables, SHAPE, 1, position_ids.distances(causal=True))
    layer = SchemeLayer(scheme, tables, SHAPE, 1, terms, position_ids)
    return layer.attend(q, q, v, x)


def double_tables(scheme: PositionScheme, shape: ModelShape) -> dict[str, Tensor]:
    """Return changed tables, since some begin as zeros."""
    return {name: table.double() + 0.3 * torch.randn(table.shape) for name, table in scheme.tables(shape).items()}


@every_variant
def test_shift(name: str) -> None:
    """Relative schemes don't notice when all positions move; absolute ones do."""
    scheme = make_scheme(name)
    far = 31 if scheme.shift_invariant or scheme.max_length(SHAPE) else 4000

    def unmoved() -> bool:
        tables = double_tables(scheme, SHAPE)
        x = 0.3 * torch.randn(2, 9, 24, dtype=torch.float64)  # small, so that every token is seen a little
        here, *there = (one_layer(scheme, tables, x, torch.arange(start, start + 9)) for start in (0, 31, far))
        return all(torch.allclose(here, moved, atol=1e-4) for moved in there)  # angles have the precision of float32

    # What isn't invariant may notice only where it is moved far, and not with any tables.
    assert unmoved() if scheme.shift_invariant else not all(unmoved() for _ in range(8))


def outputs_and_gradients(
    scheme: PositionScheme, tables: dict[str, Tensor], parts: list[Tensor], x: Tensor, weights: Tensor, **how: object
) -> list[Tensor]:
    """Return the output, and the gradients of queries, keys, values and tables."""
    own = {key: table.clone().requires_grad_() for key, table in tables.items()}
    leaves = [part.clone().requires_grad_() for part in parts]
    out = scheme_attention(scheme, own, *leaves, x=x, layer=1, num_layers=3, **how)
    loss = (out * weights.to(out.dtype)).sum()
    return [out, *torch.autograd.grad(loss, [*leaves, *own.values()], materialize_grads=True)]


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_kernels_compute_it_in_float32(name: str, causal: bool) -> None:
    """Outputs and all gradients over several blocks, against the reference in float64."""
    scheme, shape = make_scheme(name), ModelShape(LONG, 24, 3, 2, causal)
    tables = double_tables(scheme, shape)
    *parts, weights = torch.randn(4, 1, 2, LONG, 12, dtype=torch.float64)
    x = torch.randn(1, LONG, 24, dtype=torch.float64)
    exact = outputs_and_gradients(scheme, tables, parts, x, weights, causal=causal, backend="reference")
    single = {key: table.float() for key, table in tables.items()}
    rounded = outputs_and_gradients(scheme, single, [part.float() for part in parts], x.float(), weights, causal=causal)
    for found, expected in zip(rounded, exact, strict=True):
        assert (found - expected).abs().max() <= 1e-3 * expected.abs().max() + 1e-4


@every_variant
@pytest.mark.parametrize("causal", [True, False])
def test_kernels_compute_it_in_bfloat16(name: str, causal: bool) -> None:
    """Outputs and gradients are as near to float64 as products in bfloat16: the softmax and sums keep their digits."""
    scheme, shape = make_scheme(name), ModelShape(LONG, 24, 3, 2, causal)
    tables = double_tables(scheme, shape)
    *parts, weights = torch.randn(4, 1, 2, LONG, 12).bfloat16()
    x = torch.randn(1, LONG, 24).bfloat16()

    def exact(noise: float = 0.0) -> list[Tensor]:
        noisy = [part.double() * (1 + noise * torch.randn(part.shape).double()) for part in parts]
        return outputs_and_gradients(scheme, tables, noisy, x.double(), weights, causal=causal, backend="reference")

    single = {key: table.float() for key, table in tables.items()}
    rounded = outputs_and_gradients(scheme, single, parts, x, weights, causal=causal)
    assert rounded[0].dtype == torch.bfloat16
    share = 2**-6 if causal else 2**-3  # xPos, which is causal by its idea, lets scores of the future grow
    for index, (found, expected) in enumerate(zip(rounded, exact(), strict=True)):
        room = share * expected.norm() + 1e-3
        if expected.numel() < 100 and (found - expected).norm() > room:
            # The gradient of a few numbers sums up what nearly cancels: it may be as wrong as with inputs so rounded.
            room += sum((exact(noise=2**-6)[index] - expected).norm() for _ in range(4))
        assert (found - expected).norm() <= room


@every_variant
def test_every_parameter_has_the_right_gradient(name: str) -> None:
    """Gradients of each table, and of all else, along a random direction, against the difference quotient."""
    model = strong(make_model(name))
    tokens, targets = some_tokens(2, 40), some_tokens(2, 40)

    def loss() -> Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    def agrees(group: list[Tensor], step: float) -> bool:
        directions = [torch.randn_like(parameter) for parameter in group]
        losses = []
        for move in (step, -2 * step, step):
            with torch.no_grad():
                torch._foreach_add_(group, directions, alpha=move)
                losses.append(loss())
        above, below, _ = losses
        slope = sum((parameter.grad * d).sum() for parameter, d in zip(group, directions, strict=True))
        return torch.isclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=1e-7)

    loss().backward()
    groups: dict[str, list[Tensor]] = {}
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name
        of_scheme = parameter_name.startswith("position_tables.")
        if of_scheme and len(parameter) == SIZES["num_layers"]:
            assert all(layer.abs().max() > 0 for layer in parameter.grad), f"{parameter_name} of some layer is not used"
        groups.setdefault(parameter_name if of_scheme else "trunk", []).append(parameter)
    for group_name, group in groups.items():
        # A bend may lie within a step, but hardly within several shorter ones.
        assert any(agrees(group, step) for step in (1e-6, 1e-7, 1e-7, 1e-7)), group_name


@every_variant
def test_layers_share_what_they_declare_to_share(name: str) -> None:
    scheme = make_scheme(name)
    tables = double_tables(scheme, SHAPE)
    first, *others = (scheme.relative(tables, SHAPE, layer, range(40)) for layer in range(3))
    for terms in others if scheme.share_layers and first is not None else []:
        assert (terms.lowest, terms.highest) == (first.lowest, first.highest)
        assert all(torch.equal(table, first.tables[key]) for key, table in terms.tables.items())


@every_variant
def test_far_positions_in_bfloat16(name: str) -> None:
    """Angles and the like are computed in float32 or better: at position 4,093, those in bfloat16 are noise."""
    scheme, shape = make_scheme(name), ModelShape(4096, 24, 3, 2)
    tables, positions = scheme.tables(shape), torch.tensor([(scheme.max_length(shape) or 4096) - 3])
    of_head, of_token = torch.randn(1, 2, 1, 12), torch.randn(1, 1, 24)
    state = scheme.token_state(tables, 1, of_token)
    hooks = [
        (partial(getattr(scheme, hook), tables, 1, **scheme.further(hook, state)), of_head) for hook in ("query", "key")
    ]
    for hook, x in [*hooks, (partial(scheme.embed, tables), of_token)]:
        exact = hook(x, positions)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = hook(x.bfloat16(), positions)
        assert (rounded.float() - exact).abs().max() <= 2**-6 * exact.abs().max()


@every_variant
def test_tables_are_drawn_from_torch_s_generator_and_leave_its_seed_alone(name: str) -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append((make_scheme(name).tables(SHAPE), torch.rand(4)))
    (first, after), (again, _), (_, after_other) = drawn
    assert all(torch.equal(table, again[key]) for key, table in first.items())
    assert not torch.equal(after, after_other)


@every_scheme
def test_trunk_and_what_is_drawn_next_are_those_of_no_scheme(name: str) -> None:
    model = make_model(name)
    drawn = torch.rand(8)
    torch.manual_seed(0)
    plain = GPT(None, dropout=0.0, **SIZES)
    assert torch.equal(drawn, torch.rand(8))
    trunk = {key: value for key, value in model.state_dict().items() if not key.startswith("position_tables.")}
    assert trunk.keys() == plain.state_dict().keys()
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in trunk.items())
    counts = model.parameter_counts()
    of_scheme = sum(table.numel() for table in make_scheme(name).tables(model.shape).values())
    assert counts["trunk"] == TRUNK
    assert (counts["scheme"], counts["total"]) == (of_scheme, TRUNK + of_scheme)


@every_variant
def test_longer_than_the_context(name: str) -> None:
    """Finite logits, or an error with the scheme's length and that of the text."""
    model = make_model(name)
    longest = make_scheme(name).max_length(model.shape)
    if longest is None:
        assert model(some_tokens(1, LONG)).isfinite().all()
    else:
        with pytest.raises(UserError, match=rf"{longest + 1}.* {longest} "):
            model(some_tokens(1, longest + 1))


@every_scheme
def test_same_bits_twice(name: str) -> None:
    model = make_model(name, dropout=0.1).train()
    tokens = some_tokens(4, 40)
    gradients = []
    for _ in range(2):
        torch.manual_seed(3)
        model.zero_grad()
        model(tokens).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
