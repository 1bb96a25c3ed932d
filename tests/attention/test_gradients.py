"""Gradients of what schemes learn, in float32 over long texts: within 1e-4 of those in float64."""

import copy
from typing import Any

import pytest
import torch
from common import SOUND, VARIANTS, make_scheme, moved
from torch import Tensor

from poslab.attention import BACKENDS
from poslab.errors import SettingError
from poslab.nn import Attention, Position
from poslab.positions import PositionScheme
from poslab.positions.combined import Combined
from poslab.positions.forgetting import Forgetting
from poslab.positions.kerple import Kerple
from poslab.positions.sink import Sink

H, DH, LENGTH = 2, 8, 2048


def assert_exact(scheme: PositionScheme, tables: dict[str, float] | None = None, **sizes: Any) -> None:
    """Check the gradients of all tables by all backends that can compute the scheme on a CPU.

    Those of a table are compared beside a tenth of the largest of all tables, as some are sums that cancel, and those
    that are 0 but for rounding beside the largest.
    """
    position = moved(Position(scheme, heads=H, head_dim=DH, context_length=LENGTH, **sizes), 0.3)
    with torch.no_grad():
        for name, value in (tables or {}).items():
            position.own_tables[name].fill_(value)
    q, k, v, grad = torch.randn(4, 1, H, LENGTH, DH).unbind()
    x = torch.randn(1, LENGTH, H * DH)

    def gradients(dtype: torch.dtype, backend: str) -> list[Tensor]:
        of_dtype = copy.deepcopy(position).to(dtype)
        attention, inputs = Attention(of_dtype, backend=backend), (y.to(dtype) for y in (q, k, v))
        out = attention(*inputs, x=x.to(dtype))
        if not out.requires_grad:  # because its tables belong to embeddings
            return [torch.zeros_like(table) for table in of_dtype.parameters()]
        wanted = {"allow_unused": True, "materialize_grads": True}
        return [y.double() for y in torch.autograd.grad(out, list(of_dtype.parameters()), grad.to(dtype), **wanted)]

    exact = gradients(torch.float64, "auto")
    networks = "hidden" in position.own_tables
    largest = max((float(y.abs().max()) for y in exact), default=0.0)
    for backend in BACKENDS:
        if backend == "flex":  # which has no backward pass on a CPU
            continue
        try:
            found = gradients(torch.float32, backend)
        except SettingError:  # for what it can't compute
            continue
        for name, mine, theirs in zip(position.own_tables, found, exact, strict=True):
            of_table = float(theirs.abs().max())
            limit = 1e-4 * (max(of_table, largest / 10) if of_table > 1e-9 * largest else largest)
            # Where a unit of a network stands at its kink, the gradient in float64 of rounded inputs differs as much.
            assert float((mine - theirs).abs().max()) <= limit * (20 if networks else 1), (backend, name)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 4.0])
def test_a_number_of_a_steep_function_of_distance(exponent: float) -> None:
    assert_exact(Kerple(kernel="power"), {"r1": 0.3, "r2": exponent})


@pytest.mark.parametrize("scheme", [Kerple(kernel="power"), Forgetting()])
def test_beside_a_null_score(scheme: PositionScheme) -> None:
    assert_exact(Combined(scheme, Sink()), {"first_r1": 0.3, "first_r2": 2.0} if isinstance(scheme, Kerple) else {})


def test_a_sum_along_the_text() -> None:
    assert_exact(Forgetting())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOUND, *VARIANTS])
def test_all_schemes(name: str) -> None:
    torch.manual_seed(2)  # with others a unit of DAPE's network may stand at its kink, at which float32 turns it off
    settings = {"max_position": LENGTH} if name.startswith("randomized") else {}
    assert_exact(make_scheme(name, **settings))
