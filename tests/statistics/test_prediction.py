"""Predictions of the next paired difference: against formulas and the noncentral t distribution."""

import math

import numpy as np
import pytest
from scipy import stats

from poslab.statistics.prediction import next_difference

DIFFERENCES = [-0.1, -0.2, -0.15, -0.12, -0.05]


def test_interval_worked_by_hand() -> None:
    found = next_difference(DIFFERENCES)
    half = 2.776445 * np.std(DIFFERENCES, ddof=1) * math.sqrt(1 + 1 / 5)
    assert (found.low, found.high) == pytest.approx((-0.124 - half, -0.124 + half), abs=1e-6)


def test_limits_of_the_probability_by_the_noncentral_t() -> None:
    """With the truth at a limit, a t statistic as far away has a chance of 2.5 %; at the estimate, of one half."""
    found = next_difference(DIFFERENCES)
    t = -stats.ttest_1samp(DIFFERENCES, 0).statistic
    for probability, chance in (
        (found.probability_low, 0.975),
        (found.probability, 0.5),
        (found.probability_high, 0.025),
    ):
        noncentral = stats.norm.ppf(probability) * math.sqrt(5)
        assert stats.nct.cdf(t, 4, noncentral) == pytest.approx(chance, abs=1e-6)


def test_directions_are_symmetric() -> None:
    found, turned = next_difference(DIFFERENCES), next_difference([-gap for gap in DIFFERENCES])
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert turned.probability == pytest.approx(1 - found.probability)
    assert turned.probability_low == pytest.approx(1 - found.probability_high)


@pytest.mark.parametrize("gaps", [[], [0.1], [0.1, 0.1, 0.1], [0.0, 0.0]], ids=str)
def test_nothing_is_predicted_from_no_spread(gaps: list[float]) -> None:
    assert next_difference(gaps) is None


def test_certain_differences() -> None:
    found = next_difference([-1.0, -1.0001, -1.0002])
    assert 0.999 < found.probability_low <= found.probability <= found.probability_high <= 1
