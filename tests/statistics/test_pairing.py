"""Correlation of groups over seeds, and what pairing saves: against formulas."""

import numpy as np
import pytest

from poslab.statistics.prediction import pairing


def test_correlation_and_fishers_interval() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=12)
    second = first + rng.normal(size=12)
    found = pairing(first, second)
    r = np.corrcoef(first, second)[0, 1]
    half = 1.959964 / np.sqrt(12 - 3)
    assert found.correlation == pytest.approx(r)
    assert (found.low, found.high) == pytest.approx((np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half)))


def test_what_pairing_saves() -> None:
    """Groups of equal spread with a correlation r: unpaired, 1 / (1 - r) as many seeds."""
    first, second = np.array([0.0, 1, 2, 3, 4]), np.array([0.0, 2, 1, 3, 4])
    found = pairing(first, second)
    assert found.correlation == pytest.approx(0.9)
    assert found.variance_ratio == pytest.approx(1 / (1 - 0.9))
    against = pairing(first, -second)
    assert against.correlation == pytest.approx(-0.9)
    assert against.variance_ratio < 1


def test_few_seeds_and_no_spread() -> None:
    three = pairing([1.0, 2.0, 4.0], [1.0, 3.0, 2.0])
    assert (three.low, three.high) == (-1, 1)
    for pair in (([1.0, 2.0], [2.0, 1.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])):
        assert pairing(*pair) is None
