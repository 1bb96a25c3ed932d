"""Shaw's relative representations: reference indices, the values of each pair, their beginning."""

import math

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.positions import ModelShape
from poslab.positions.shaw import Shaw


def test_reference_indices(reference_cases: dict) -> None:
    case = reference_cases["shaw_clipped_indices"]
    k = case["max_relative_position"]
    scheme = Shaw(max_distance=k)
    shape = ModelShape(context_length=8, embed_dim=case["num_units"], num_layers=1, num_heads=1, causal=False)
    tables = scheme.tables(shape)
    assert tables["keys"].shape == (1, case["table_rows"], case["num_units"])
    terms = scheme.relative(tables, shape, 0, range(-2, 3))
    indices = terms.row_indices(case["query_length"], case["key_length"], offset=0)
    assert indices.tolist() == case["indices"]
    assert list(terms.keys[indices].shape) == case["looked_up_shape"]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("switches", [{}, {"share_layers": True}, {"share_heads": False}], ids=str)
def test_values_are_looked_up_for_each_pair(causal: bool, switches: dict[str, bool]) -> None:
    """Equation 3; its scores are compared with the formula in test_schemes.py."""
    scheme, length, lowest = Shaw(3, keys=False, **switches), 9, 0 if causal else -3
    tables = scheme.tables(ModelShape(length, 8, num_layers=2, num_heads=2, causal=causal))
    table = tables["values"] if scheme.share_layers else tables["values"][1]
    table = table.expand(2, -1, -1)  # (H, R, Dh)
    q, k, v = torch.randn(3, 1, 2, length, 4)
    index = torch.arange(length)
    distance = index[:, None] - index  # (T, T)
    hidden = (distance < 0) & causal
    weights = (q @ k.mT / 2).masked_fill(hidden, -torch.inf).softmax(-1)  # (1, H, T, T)
    added = table[:, distance.clamp(lowest, 3) - lowest]  # (H, T, T, Dh)
    expected = weights @ v + (weights[..., None] * added).sum(-2)
    found = scheme_attention(scheme, tables, q, k, v, layer=1, num_layers=2, causal=causal)
    assert torch.allclose(found, expected, atol=1e-6)


def test_xavier_for_each_table() -> None:
    table = Shaw(max_distance=16).tables(ModelShape(64, embed_dim=256, num_layers=4, num_heads=4))["keys"]
    assert table.shape == (4, 17, 64)
    bound = math.sqrt(6 / (17 + 64))
    assert table.abs().max() <= bound
    assert table.abs().max() > 0.99 * bound
    assert abs(table.std().item() - bound / math.sqrt(3)) < 0.01
