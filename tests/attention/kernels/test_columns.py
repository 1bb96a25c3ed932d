"""Attention with a bias of each key as further channels of a plain flash call, against the dense formula in float64."""

from dataclasses import replace

import pytest
import torch
from kernel_cases import Case, results
from torch import Tensor

from poslab.attention import attend
from poslab.errors import SettingError
from poslab.positions import RelativeTerms
from poslab.positions.alibi import slopes

CASES = {
    "learned slopes": Case("slopes", 150),
    "gates": Case("none", 150, gates=True, head_dim=12),
    "slopes and gates, shared keys": Case("slopes", 90, gates=True, shared_heads=1),
    "a negative scale": Case("slopes", 90, scale=-0.2),
    "a scale of 0": Case("slopes", 20, scale=0.0),
    "a single token": Case("none", 1, gates=True),
}


def relative_errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    return [float((a.double() - b).norm() / b.norm().clamp(min=1)) for a, b in zip(found, exact, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(name: str) -> None:
    assert max(relative_errors(results(CASES[name], "columns"), results(CASES[name], "exact"))) < 1e-5


@pytest.mark.parametrize("length", [256, 1024])
def test_bfloat16_is_as_exact_as_a_mask(length: int) -> None:
    """ALiBi's slopes; the largest numbers are 512 and 8 times those of a score."""
    q, k, v = torch.randn(3, 1, 8, length, 64).bfloat16()
    bias = -torch.tensor(slopes(8), dtype=torch.float64)[:, None] * torch.arange(length)
    terms = RelativeTerms(0, length - 1, bias=bias, linear=True)
    exact = attend(q.double(), k.double(), v.double(), terms, backend="reference")
    columns, mask = (attend(q, k, v, terms, backend=backend) for backend in ("columns", "sdpa"))
    assert (columns - exact).abs().max() < 1.2 * (mask - exact).abs().max()


def test_a_bias_that_is_not_linear_is_refused() -> None:
    with pytest.raises(SettingError, match="bias that isn't linear"):
        results(Case("bias", 8, 7), "columns")
    # Beyond its table a bias is one number.
    q = torch.randn(1, 2, 20, 4)
    terms = RelativeTerms(0, 9, bias=-torch.ones(2, 1) * torch.arange(10), linear=True)
    with pytest.raises(SettingError, match="bias that isn't linear"):
        attend(q, q, q, terms, backend="columns")
    with pytest.raises(SettingError, match="can't compute window"):
        results(replace(CASES["gates"], window=3), "columns")
