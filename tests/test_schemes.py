"""The contract that every scheme in configs/pos keeps. A new yaml is found by itself."""

import dataclasses
import io

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from conftest import SCHEMES, make_scheme
from oracles import attention_by_loops
from poslab import GPT
from poslab.attention import attend
from poslab.errors import UserError
from poslab.positions import Curves, Matrix, ModelShape, PositionScheme
from poslab.settings.train import CONFIGS

SIZES = {"vocab_size": 61, "context_length": 40, "embed_dim": 24, "num_layers": 3, "num_heads": 2}
SHAPES = {causal: ModelShape(40, 24, 3, 2, causal) for causal in (True, False)}
TRUNK = 61 * 24 + 3 * (12 * 24**2 + 13 * 24) + 2 * 24  # embedding, blocks, final norm

pytestmark = pytest.mark.parametrize("name", SCHEMES)


def make_model(name: str, seed: int = 0, **sizes: object) -> GPT:
    torch.manual_seed(seed)
    return GPT(make_scheme(name), **({"dropout": 0.0} | SIZES | sizes))


def strong(model: GPT) -> GPT:
    """Weights large enough for position to matter, in double precision."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.double().eval()


def some_tokens(*shape: int) -> Tensor:
    return torch.randint(0, SIZES["vocab_size"], shape)


def test_yaml_lists_every_setting_with_its_default(name: str) -> None:
    yaml = OmegaConf.to_container(OmegaConf.load(CONFIGS / "pos" / f"{name}.yaml"))
    scheme = make_scheme(name)
    assert {"_target_", *(f.name for f in dataclasses.fields(scheme))} == set(yaml)
    assert type(scheme)() == scheme


def test_causal(name: str) -> None:
    model = strong(make_model(name))
    tokens = some_tokens(2, 40)
    changed = tokens.clone()
    changed[:, 25:] = (changed[:, 25:] + 1) % SIZES["vocab_size"]
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :25], after[:, :25])
    assert (before[:, 25:] - after[:, 25:]).abs().min(dim=-1).values.max() > 1e-3


def test_bidirectional_sees_the_future(name: str) -> None:
    model = strong(make_model(name, causal=False))
    tokens = some_tokens(2, 40)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % SIZES["vocab_size"]
    assert (model(tokens)[:, 0] - model(changed)[:, 0]).abs().max() > 1e-6


def test_position_matters(name: str) -> None:
    """With the same token everywhere, only the scheme can tell one place from another; two orders differ, too."""
    model = strong(make_model(name))
    logits = model(torch.tensor([[1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 5, 6]]))
    assert (logits[0, -1] - logits[1, -1]).abs().max() > 1e-3


def hooks_as_attention(
    scheme: PositionScheme, tables: dict[str, Tensor], x: Tensor, positions: Tensor, causal: bool, by_loops: bool
) -> Tensor:
    """One attention layer with the scheme's hooks and nothing else: x (B, T, D) -> (B, H, T, Dh)."""
    length = int(positions[-1]) + 1  # of the whole sequence, of which x may be the end
    q = k = scheme.embed(tables, x, positions).unflatten(-1, (2, 12)).transpose(1, 2)
    q, k = scheme.rotate(tables, q, positions), scheme.rotate(tables, k, positions)
    v = x.unflatten(-1, (2, 12)).transpose(1, 2)
    terms = scheme.relative(tables, SHAPES[causal], 1, range(0 if causal else 1 - length, length))
    if by_loops:
        return attention_by_loops(q, k, v, terms, causal=causal, offset=0, scale=12**-0.5)
    return attend(q, k, v, terms, causal=causal)


def double_tables(scheme: PositionScheme, shape: ModelShape) -> dict[str, Tensor]:
    return {name: torch.randn_like(table.double()) for name, table in scheme.tables(shape).items()}


@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_oracle(name: str, causal: bool) -> None:
    scheme = make_scheme(name)
    tables = double_tables(scheme, SHAPES[causal])
    x, positions = torch.randn(1, 30, 24, dtype=torch.float64), torch.arange(30)
    fast, slow = (hooks_as_attention(scheme, tables, x, positions, causal, by_loops) for by_loops in (False, True))
    assert torch.allclose(fast, slow, atol=1e-12)


def test_shift(name: str) -> None:
    """Relative schemes don't notice when all positions move; absolute ones do."""
    scheme = make_scheme(name)
    tables = double_tables(scheme, SHAPES[True])
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    here, there = (
        hooks_as_attention(scheme, tables, x, torch.arange(start, start + 9), True, False) for start in (0, 17)
    )
    assert torch.allclose(here, there, atol=1e-9) == scheme.shift_invariant


def test_fewer_queries_than_keys(name: str) -> None:
    """The last queries over all keys, as in decoding with a cache, are the end of the full pass."""
    scheme = make_scheme(name)
    tables = double_tables(scheme, SHAPES[True])
    positions = torch.arange(20)
    q, k, v = torch.randn(3, 2, 2, 20, 12, dtype=torch.float64)
    q, k = scheme.rotate(tables, q, positions), scheme.rotate(tables, k, positions)
    full = attend(q, k, v, scheme.relative(tables, SHAPES[True], 1, range(20)))
    for count in (1, 7):
        tail = attend(q[:, :, -count:], k, v, scheme.relative(tables, SHAPES[True], 1, range(20)), offset=20 - count)
        assert torch.allclose(tail, full[:, :, -count:], atol=1e-12)


def test_every_parameter_has_the_right_gradient(name: str) -> None:
    """Along a random direction, for each parameter by itself, against the difference quotient."""
    model = strong(make_model(name))
    tokens, targets = some_tokens(2, 40), some_tokens(2, 40)

    def loss() -> Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    loss().backward()
    step = 1e-5
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            parameter.add_(step * direction)
            above = loss()
            parameter.sub_(2 * step * direction)
            below = loss()
            parameter.add_(step * direction)
        slope = (parameter.grad * direction).sum()
        assert torch.isclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=1e-8), parameter_name


def test_bfloat16_autocast(name: str) -> None:
    model = make_model(name)
    tokens = some_tokens(2, 40)
    exact = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().max() < 0.05 * exact.abs().max()
    rounded.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.dtype == p.dtype for p in model.parameters())


def test_state_dict_round_trip(name: str) -> None:
    model, other = make_model(name, seed=1), make_model(name, seed=2)
    tokens = some_tokens(2, 40)
    assert not torch.equal(model(tokens), other(tokens))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(model(tokens), other(tokens))


def test_length_leaves_nothing_in_the_state(name: str) -> None:
    model = make_model(name)
    names = {key: value.shape for key, value in model.state_dict().items()}
    model(some_tokens(1, 3))
    model(some_tokens(1, 40))
    assert {key: value.shape for key, value in model.state_dict().items()} == names


def test_trunk_and_what_is_drawn_next_are_those_of_no_scheme(name: str) -> None:
    model = make_model(name)
    drawn = torch.rand(8)
    torch.manual_seed(0)
    plain = GPT(None, dropout=0.0, **SIZES)
    assert torch.equal(drawn, torch.rand(8))
    trunk = {key: value for key, value in model.state_dict().items() if not key.startswith("position_tables.")}
    assert trunk.keys() == plain.state_dict().keys()
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in trunk.items())


def test_parameter_counts(name: str) -> None:
    model = make_model(name)
    tables = make_scheme(name).tables(model.shape)
    counts = model.parameter_counts()
    assert counts["trunk"] == TRUNK
    assert counts["scheme"] == sum(table.numel() for table in tables.values())
    assert counts["total"] == counts["trunk"] + counts["scheme"] == sum(p.numel() for p in model.parameters())


def test_longer_than_the_context(name: str) -> None:
    """Either the scheme goes on, or it says how far it goes and how much was asked."""
    model = make_model(name)
    longest = make_scheme(name).max_positions(model.shape)
    if longest is None:
        assert model(some_tokens(1, 100)).isfinite().all()
    else:
        with pytest.raises(UserError, match=rf"{longest + 1}.* {longest} "):
            model(some_tokens(1, longest + 1))


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


def test_pictures(name: str) -> None:
    pictures = make_model(name).pictures()
    assert bool(pictures) or not make_scheme(name).tables(SHAPES[True])
    for picture in pictures.values():
        assert picture.title
        if isinstance(picture, Curves):
            assert picture.lines
            assert all(line.shape == (len(picture.x),) and line.isfinite().all() for line in picture.lines.values())
        else:
            assert isinstance(picture, Matrix)
            assert picture.values.isfinite().all()
