"""FIRE: the paper's network written with torch's layers, its beginning, what it knows of the query's place."""

import pytest
import torch
from torch import Tensor, nn

from poslab.attention import scheme_attention
from poslab.positions import ModelShape
from poslab.positions.fire import FIRE


def some_tables(scheme: FIRE) -> dict[str, Tensor]:
    """Tables of one layer with two heads of 8, in double precision."""
    return {name: table.double() for name, table in scheme.tables(ModelShape(64, 16, 1, 2)).items()}


def network(tables: dict[str, Tensor]) -> nn.Module:
    """Return the network of the paper's code, from ratios (..., 1) to biases (..., H)."""
    (width,), heads = tables["hidden"][0].shape, len(tables["output"][0])
    layers = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, heads)).double()
    weights = tables["hidden"][0][:, None], tables["hidden_bias"][0], tables["output"][0], tables["output_bias"][0]
    layers.load_state_dict(dict(zip(layers.state_dict(), weights, strict=True)))
    return layers


def odd_units(tables: dict[str, Tensor]) -> None:
    """Replace units by some that never bend, bend at one ratio, or bend outside of what occurs."""
    hidden, bias = tables["hidden"][0], tables["hidden_bias"][0]
    hidden[:3], bias[:3] = 0.0, torch.tensor([-0.5, 0.0, 0.5])
    hidden[3:6], bias[3:6] = torch.tensor([1.0, -1.0, 2.0]), torch.tensor([-0.5, 0.5, -1.0])
    hidden[6], bias[6] = 1e-300, 1.0


@pytest.mark.parametrize("threshold", [20.0, 512.0])
@pytest.mark.parametrize("odd", [False, True])
def test_equals_the_network_of_the_paper(threshold: float, odd: bool) -> None:
    scheme, length = FIRE(init_threshold=threshold), 200
    tables = some_tables(scheme)
    if odd:
        odd_units(tables)
    q, k, v = torch.randn(3, 2, 2, length, 8, dtype=torch.float64)
    place = torch.arange(length).double()
    log = lambda x: torch.log(torch.abs(0.1 * x) + 1)  # noqa: E731
    ratio = log(place[:, None] - place) / (log(place.clamp(min=threshold)) + 1e-6)[:, None]
    scores = q @ k.mT / 8**0.5 + network(tables)(ratio[..., None]).movedim(-1, 0)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert torch.allclose(scheme_attention(scheme, tables, q, k, v), expected, atol=1e-10)


def test_begins_as_linear_layers_do() -> None:
    tables = FIRE(init_c=0.2).tables(ModelShape(64, 64, 40, 8))
    assert (tables["c"] == tables["c"].new_tensor(0.2)).all()
    assert (tables["threshold"] == 1).all()
    for name, layer in (("hidden", nn.Linear(1, 32)), ("output", nn.Linear(32, 8))):
        bound = layer.in_features**-0.5
        for table in (tables[name], tables[f"{name}_bias"]):
            assert 0.9 * bound < table.abs().max() <= bound
            assert table.mean().abs() < 0.1 * bound


def test_a_threshold_that_training_never_reaches_is_told() -> None:
    (said,) = FIRE().warnings(ModelShape(65, 16, 1, 2))
    assert said.startswith("pos.init_threshold=64: no query of a context of 65 ")
    assert FIRE().warnings(ModelShape(66, 16, 1, 2)) == []
