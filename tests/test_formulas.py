"""Every scheme against its paper: the weights of attention, and the scalar `score` of each pair."""

import math

import pytest
import torch
from torch import Tensor

from conftest import SCHEMES, VARIANTS, make_scheme
from oracles import has_formula
from poslab.attention import scheme_attention
from poslab.positions import HeadInputs, ModelShape, PositionScheme

LENGTH, LAYERS, HEADS = 8, 2, 3
HEAD_DIM = LENGTH  # so that there is a value for each key, and outputs are weights
LATER = [0, 1, 2, 5, 8, 9, 13, 21]  # positions with gaps, as they may be given


def oracle(
    scheme: PositionScheme,
    tables: dict[str, Tensor],
    shape: ModelShape,
    layer: int,
    positions: list[int],
    q: Tensor,
    k: Tensor,
    x: Tensor,
) -> Tensor:
    """q and k (H, T, Dh), x (T, D) -> the weights (H, T, T), pair by pair."""
    seen = [[j <= i or not shape.causal for j in range(LENGTH)] for i in range(LENGTH)]
    weights = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for head in range(HEADS):
        text = HeadInputs(q[head], k[head], x, positions, seen)
        for i in range(LENGTH):
            keys = [j for j in range(LENGTH) if seen[i][j]]
            scores = [float(scheme.reference_score(tables, shape, layer, head, text, i, j)) for j in keys]
            largest = max(scores)
            shares = [math.exp(score - largest) for score in scores]
            for j, share in zip(keys, shares, strict=True):
                weights[head, i, j] = share / sum(shares)
    return weights


def assert_is_the_formula(scheme: PositionScheme, causal: bool, positions: list[int] | None = None) -> None:
    """In float64, in every layer, with tables large enough to be felt and different in each."""
    shape = ModelShape(LENGTH if positions is None else LATER[-1] + 1, HEADS * HEAD_DIM, LAYERS, HEADS, causal)
    tables = {key: table.double() for key, table in scheme.tables(shape).items()}
    tables = {key: table + 0.5 * torch.randn_like(table) for key, table in tables.items()}
    given = None if positions is None else torch.tensor(positions)
    for layer in range(LAYERS) if positions is None else [LAYERS - 1]:
        q, k = torch.randn(2, 1, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64)
        x = torch.randn(1, LENGTH, HEADS * HEAD_DIM, dtype=torch.float64)
        values = torch.eye(LENGTH, dtype=torch.float64).expand(1, HEADS, -1, -1)
        expected = oracle(scheme, tables, shape, layer, positions or list(range(LENGTH)), q[0], k[0], x[0])
        for backend in ("reference", "blockwise"):
            how = {"x": x, "layer": layer, "num_layers": LAYERS, "positions": given, "causal": causal}
            # Less what a table adds to the values themselves.
            out, nothing = (
                scheme_attention(scheme, tables, q, k, v, **how, backend=backend) for v in (values, 0 * values)
            )
            assert torch.allclose((out - nothing)[0], expected, atol=1e-9), backend


@pytest.mark.parametrize("name", [*SCHEMES, *VARIANTS])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("positions", [None, LATER], ids=["counting", "given"])
def test_attention_is_the_formula(name: str, causal: bool, positions: list[int] | None) -> None:
    scheme = make_scheme(name)
    if not has_formula(scheme):
        pytest.skip(f"{name} has no `score` to be held against")
    assert_is_the_formula(scheme, causal, positions)
