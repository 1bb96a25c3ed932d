"""Proportions of seeds: against figures worked by hand and the definition of their limits."""

import pytest
from scipy import stats

from seedstats.statistics.proportions import at_most, proportion


def test_seeds_that_agree_are_no_certainty() -> None:
    found = proportion(5, 5)
    assert (found.count, found.n, found.high) == (5, 5, 1)
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
