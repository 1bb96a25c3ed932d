"""Shaw's relative representations: reference indices, the paper's formula as loops, table sizes."""

import math

import pytest
import torch

from poslab import GPT
from poslab.attention import attend
from poslab.errors import SettingError
from poslab.positions import ModelShape, RelativeTerms
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
@pytest.mark.parametrize(
    "switches",
    [{}, {"values": False}, {"keys": False}, {"share_layers": True}, {"share_heads": False}],
    ids=["default", "keys only", "values only", "shared by layers", "per head"],
)
def test_attention_equals_the_paper(causal: bool, switches: dict) -> None:
    """Equations 3 and 4, with a_ij looked up pair by pair."""
    k_max, length, heads, head_dim = 3, 9, 2, 4
    scheme = Shaw(max_distance=k_max, **switches)
    shape = ModelShape(length, heads * head_dim, num_layers=2, num_heads=heads, causal=causal)
    tables = {name: table.double() for name, table in scheme.tables(shape).items()}
    q, k, v = torch.randn(3, 1, heads, length, head_dim, dtype=torch.float64)
    layer = 1

    def looked_up(name: str, head: int, distance: int) -> torch.Tensor:
        if name not in tables:
            return torch.zeros(head_dim, dtype=torch.float64)
        table = tables[name] if scheme.share_layers else tables[name][layer]
        table = table if scheme.share_heads else table[head]
        row = max(-k_max, min(k_max, distance)) + (0 if causal else k_max)
        return table[row]

    expected = torch.zeros_like(q)
    for h in range(heads):
        for i in range(length):
            seen = range(i + 1) if causal else range(length)
            e = [torch.dot(q[0, h, i], k[0, h, j] + looked_up("keys", h, i - j)) / math.sqrt(head_dim) for j in seen]
            alpha = torch.stack(e).softmax(0)
            expected[0, h, i] = sum(
                a * (v[0, h, j] + looked_up("values", h, i - j)) for a, j in zip(alpha, seen, strict=True)
            )
    terms = scheme.relative(tables, shape, layer, range(0 if causal else 1 - length, length))
    assert torch.allclose(attend(q, k, v, terms, causal=causal), expected, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_parameter_count(causal: bool) -> None:
    """L tables of K + 1 rows (2 K + 1 when the future is visible) and Dh columns, for keys and for values."""
    layers, heads, head_dim, k = 3, 4, 8, 5
    sizes = {"vocab_size": 50, "embed_dim": heads * head_dim, "num_layers": layers, "num_heads": heads}
    rows = k + 1 if causal else 2 * k + 1
    for switches, tables in [
        ({}, 2 * layers),
        ({"values": False}, layers),
        ({"share_layers": True}, 2),
        ({"share_heads": False}, 2 * layers * heads),
    ]:
        model = GPT(Shaw(max_distance=k, **switches), causal=causal, **sizes)
        assert model.parameter_counts()["scheme"] == tables * rows * head_dim


def test_xavier_for_each_table() -> None:
    table = Shaw(max_distance=16).tables(ModelShape(64, embed_dim=256, num_layers=4, num_heads=4))["keys"]
    assert table.shape == (4, 17, 64)
    bound = math.sqrt(6 / (17 + 64))
    assert table.abs().max() <= bound
    assert table.abs().max() > 0.99 * bound
    assert abs(table.std().item() - bound / math.sqrt(3)) < 0.01


def test_refuses() -> None:
    for settings, option in [({"max_distance": 0}, "max_distance"), ({"keys": False, "values": False}, "keys")]:
        with pytest.raises(SettingError) as refusal:
            Shaw(**settings)
        assert refusal.value.option == option


def test_warns_of_rows_that_never_train() -> None:
    shape = ModelShape(16, embed_dim=8, num_layers=1, num_heads=1)
    assert "16 to 16" in Shaw(max_distance=16).warnings(shape)[0]
    assert Shaw(max_distance=15).warnings(shape) == []


def test_table_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="keys has 4 rows"):
        RelativeTerms(0, 4, keys=torch.zeros(4, 8))
