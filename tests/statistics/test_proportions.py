"""Proportions of seeds: against figures worked by hand and the definition of Boschloo's test."""

import numpy as np
import pytest
from scipy import stats

from poslab.statistics.proportions import at_most, proportion, proportions_differ


def test_seeds_that_agree_are_no_certainty() -> None:
    found = proportion(5, 5)
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(0.025 ** (1 / 5))  # all five solve with a chance of p**5
    assert proportion(0, 5).high == pytest.approx(1 - 0.025 ** (1 / 5))


def test_interval_by_its_definition() -> None:
    """At each end, as few or as many successes have a chance of 2.5 %."""
    found = proportion(3, 8)
    assert stats.binom.sf(2, 8, found.low) == pytest.approx(0.025)
    assert stats.binom.cdf(3, 8, found.high) == pytest.approx(0.025)


def test_a_failure_that_was_not_seen_is_possible() -> None:
    assert at_most(0, 5) == pytest.approx(1 - 0.05 ** (1 / 5))
    assert round(at_most(0, 5), 2) == 0.45
    assert stats.binom.cdf(2, 10, at_most(2, 10)) == pytest.approx(0.05)
    assert at_most(5, 5) == 1
    assert at_most(0, 5, 0.975) == pytest.approx(proportion(0, 5).high)


def test_no_seeds_have_no_proportion() -> None:
    with pytest.raises(ValueError, match="n"):
        proportion(0, 0)


def boschloo(a: int, b: int, n: int) -> float:
    """Return twice the largest chance of a table with as small a one-sided p of Fisher's test, over a grid."""
    fisher = {
        (x, y): stats.hypergeom.sf(x - 1, 2 * n, x + y, n) if x + y else 1.0 for x in range(n + 1) for y in range(n + 1)
    }
    grid = np.linspace(0, 1, 2001)
    extreme = [pair for pair, p in fisher.items() if p <= fisher[max(a, b), min(a, b)] * (1 + 1e-9)]
    chances = sum(stats.binom.pmf(x, n, grid) * stats.binom.pmf(y, n, grid) for x, y in extreme)
    return min(1.0, 2 * float(np.max(chances)))


@pytest.mark.parametrize(("a", "b", "n"), [(5, 0, 5), (0, 5, 5), (5, 1, 5), (6, 2, 8), (3, 3, 5)])
def test_two_groups_by_boschloos_definition(a: int, b: int, n: int) -> None:
    found = proportions_differ(a, n, b, n)
    assert found == pytest.approx(boschloo(a, b, n), rel=1e-3)
    assert found <= stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue + 1e-9
    assert found == pytest.approx(proportions_differ(b, n, a, n))


def test_groups_of_different_size() -> None:
    assert proportions_differ(5, 5, 0, 8) < proportions_differ(5, 5, 0, 5) == pytest.approx(2 * 0.5**10)
