"""Times to solve with runs that end before: against curves and limits worked by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from poslab.comparison.survival import log_rank, time_to_solve
from simulated_times import median_limits, misses_of_median, times_differ

COUNT = 400  # simulated studies
BY_CHANCE = 3 * (0.05 * 0.95 / COUNT) ** 0.5  # three standard errors of a proportion of 5 %


def test_median_worked_by_hand() -> None:
    """Kaplan & Meier: of 5, one solves at 1 (4/5), one ends at 2, two solve at 3 (4/5 x 1/3), one at 4."""
    found = time_to_solve([1, 2, 3, 3, 4], [True, False, True, True, True])
    assert found.median == 3


def test_half_must_have_solved() -> None:
    assert time_to_solve([1, 2, 9, 9], [True, True, False, False]).median == 2
    assert time_to_solve([1, 9, 9], [True, False, False]).median == math.inf
    none = time_to_solve([9, 9, 9], [False] * 3)
    assert none == (math.inf, 0, math.inf)


@pytest.mark.parametrize("n", [3, 5, 6, 9, 12, 20])
def test_limits_of_runs_that_all_solve_are_those_of_the_sign_test(n: int) -> None:
    times = np.arange(1.0, n + 1)
    below = [k for k in range(n // 2 + 1) if stats.binom.cdf(k, n, 0.5) <= 0.025]  # so many may lie outside each limit
    low, high = (below[-1] + 1.0, n - below[-1]) if below else (0.0, math.inf)
    found = time_to_solve(times, np.full(n, True))
    assert (found.low, found.high) == (low, high)


def test_one_budget_hides_only_what_is_beyond_it() -> None:
    """Limits within the budget are those of longer runs, others are open."""
    times = np.arange(1.0, 13)
    every = time_to_solve(times, times < 13)
    assert (every.low, every.high) == (3, 10)
    for budget in (11, 10, 8, 5):
        found = time_to_solve(np.minimum(times, budget), times <= budget)
        assert found.low == 3
        assert found.high == (10 if budget >= 10 else math.inf)


def test_runs_that_end_early_widen_the_limits() -> None:
    times = np.arange(1.0, 21)
    every = time_to_solve(times, np.full(20, True))
    fewer = time_to_solve(times, times % 4 != 1)
    assert fewer.high - fewer.low > every.high - every.low
    assert fewer.median > every.median


def log_rank_by_hand(times: list[float], solved: list[bool], first: tuple[int, ...]) -> float:
    """Return observed less expected events of the first group, summed over the times of events."""
    total = 0.0
    for time in sorted({t for t, s in zip(times, solved, strict=True) if s}):
        events = [i for i, (t, s) in enumerate(zip(times, solved, strict=True)) if s and t == time]
        at_risk = [i for i, t in enumerate(times) if t >= time]
        expected = len(events) * sum(i in first for i in at_risk) / len(at_risk)
        total += sum(i in first for i in events) - expected
    return total


@pytest.mark.parametrize(
    "solved", [[True] * 8, [True, True, False, True, True, False, True, False]], ids=["all solve", "some do"]
)
def test_log_rank_over_all_splits(solved: list[bool]) -> None:
    times = [1.0, 2.0, 2.0, 4.0, 5.0, 5.0, 7.0, 8.0]
    splits = [log_rank_by_hand(times, solved, split) for split in combinations(range(8), 4)]
    observed = log_rank_by_hand(times, solved, (0, 1, 2, 3))
    tail = min(np.mean(np.array(splits) >= observed - 1e-9), np.mean(np.array(splits) <= observed + 1e-9))
    found = log_rank((times[:4], solved[:4]), (times[4:], solved[4:]))
    assert found == pytest.approx(min(1.0, 2 * tail))


def test_log_rank_at_the_ends() -> None:
    never = ([9, 9, 9, 9, 9], [False] * 5)
    assert log_rank(never, never) == 1
    assert log_rank(([1, 2, 3, 4, 5], [True] * 5), never) == pytest.approx(2 / math.comb(10, 5))
    many = (np.arange(30.0), np.full(30, True))
    assert log_rank(many, (np.arange(30.0) + 20, np.full(30, True))) == log_rank(
        many, (np.arange(30.0) + 20, [True] * 30)
    )


@pytest.mark.parametrize("n", [3, 7, 20])
@pytest.mark.parametrize("solve", [0.99, 0.55])
def test_median_time_to_solve_is_covered(n: int, solve: float) -> None:
    assert misses_of_median(median_limits, COUNT, n, solve) <= 0.05 + BY_CHANCE


def test_times_differ_falsely_as_rarely_as_promised() -> None:
    assert times_differ(COUNT // 2, 5, 0.6) <= 0.05 + 2 * BY_CHANCE
    assert times_differ(20, 8, 0.6, faster=3) > 0.5
