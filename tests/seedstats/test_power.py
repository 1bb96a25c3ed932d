"""Number of seeds: against published tables and the noncentral t distribution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from seedstats.statistics.power import MOST_SEEDS, plan_seeds, sd_limit, seeds_needed


def test_seeds_needed_equal_to_published_tables() -> None:
    # Cohen's d of 0.2, 0.5, 0.8 and 1, two-sided alpha 0.05, power 0.8: the paired t test of G*Power.
    assert [seeds_needed(1, d) for d in (0.2, 0.5, 0.8, 1.0)] == [199, 34, 15, 10]
    assert seeds_needed(0.05, 0.025) == seeds_needed(2, 1)


@given(ratio=st.floats(0.05, 5), alpha=st.sampled_from([0.05, 0.025, 0.001]), power=st.sampled_from([0.5, 0.8, 0.99]))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_seeds_needed_by_the_noncentral_t(ratio: float, alpha: float, power: float) -> None:
    def power_with(n: int) -> float:
        return float(stats.nct.sf(stats.t.isf(alpha / 2, n - 1), n - 1, ratio * math.sqrt(n)))

    n = seeds_needed(1, ratio, alpha, power)
    assert power_with(n) >= power - 1e-9
    assert n == 2 or power_with(n - 1) < power + 1e-9, n


@pytest.mark.parametrize(
    ("sd", "effect", "expected"),
    [
        (0, 0.02, 2),
        (1e-300, 1e300, 2),
        (5e-324, 1, 2),
        (1, 1e-9, MOST_SEEDS),
        (1e300, 5e-324, MOST_SEEDS),
    ],
)
def test_seeds_needed_at_the_ends(sd: float, effect: float, expected: int) -> None:
    assert seeds_needed(sd, effect) == expected


def test_larger_effects_never_need_more_seeds() -> None:
    """scipy's noncentral t gives NaN here and there, which must not lead the search astray."""
    needed = [seeds_needed(1, ratio, alpha=0.001) for ratio in np.geomspace(0.05, 1e6, 800)]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] == 2


def test_limit_of_the_sd_by_the_table_of_chi_square() -> None:
    # 4 degrees of freedom: 20 % of chi-square is below 1.649, 97.5 % below 11.143.
    assert sd_limit(2, 5, 0.8) == pytest.approx(2 * math.sqrt(4 / 1.649), rel=1e-3)
    assert sd_limit(2, 5, 0.025) == pytest.approx(2 * math.sqrt(4 / 11.143), rel=1e-3)
    assert sd_limit(2, 100_000, 0.8) == pytest.approx(2, rel=0.01)


def test_plan_of_five_seeds() -> None:
    """Numbers grow about as the squares of the limits of the sd."""
    plan = plan_seeds(0.0151, 5, 0.005)
    assert seeds_needed(0.0151, 0.005) == 74
    assert plan.assured == pytest.approx(74 * 4 / 1.649, rel=0.02)
    assert plan.low == pytest.approx(74 * 4 / 11.143, rel=0.08)
    assert plan.high == pytest.approx(74 * 4 / 0.4844, rel=0.04)
    assert plan_seeds(0.0151, 50, 0.005).assured < plan.assured


@pytest.mark.parametrize(
    ("sd", "pilot", "effect", "problem"),
    [
        (math.nan, 3, 0.02, "sd=nan: must be a number"),
        (-0.1, 3, 0.02, "sd=-0.1: must be a number, at least 0"),
        (0.03, 1, 0.02, "pilot=1: must be at least 2"),
        (0.03, 3, 0.0, "effect=0.0: must be a finite number other than 0"),
    ],
)
def test_a_plan_from_nothing_is_refused(sd: float, pilot: int, effect: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        plan_seeds(sd, pilot, effect)


def test_an_effect_has_no_direction() -> None:
    assert plan_seeds(0.03, 3, -0.02) == plan_seeds(0.03, 3, 0.02)
