"""Simulated times to solve: how often the estimates of `poslab.comparison.survival` hold what they state.

    python tests/simulated_times.py

writes the tables of data/studies/simulated_claims.md; `comparison/test_survival.py` holds the same figures, of fewer
studies, to their limits.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

from poslab.comparison.survival import log_rank, time_to_solve
from simulated_claims import table

Array = np.ndarray


def solve_times(rng: np.random.Generator, n: int, solve: float, faster: float = 1.0) -> tuple[Array, Array]:
    """Return lognormal times (n,) with a median of 1 / faster, and whether they are within the budget that
    the proportion `solve` of all runs keeps."""
    times = rng.lognormal(-math.log(faster), 0.5, n)
    budget = math.exp(0.5 * stats.norm.ppf(solve))
    return np.minimum(times, budget), times <= budget


def misses_of_median(of: Callable[[Array, Array], tuple[float, float]], count: int, n: int, solve: float) -> float:
    """Return how often the limits of the median miss the truth."""
    rng, missed = np.random.default_rng(3), 0
    for _ in range(count):
        low, high = of(*solve_times(rng, n, solve))
        missed += not low <= 1 <= high
    return missed / count


def median_limits(times: Array, solved: Array) -> tuple[float, float]:
    found = time_to_solve(times, solved)
    return found.low, found.high


def greenwood(times: Array, solved: Array) -> tuple[float, float]:
    """Return the limits that scipy's interval of the curve gives, by Greenwood's variance of its log-log."""
    curve = stats.ecdf(stats.CensoredData(times[solved], right=times[~solved])).sf
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        interval = curve.confidence_interval(method="log-log")
    low = curve.quantiles[np.nan_to_num(interval.low.probabilities, nan=0.0) <= 0.5]
    high = curve.quantiles[np.nan_to_num(interval.high.probabilities, nan=1.0) < 0.5]
    return low.min(initial=math.inf), high.min(initial=math.inf)


def times_differ(count: int, n: int, solve: float, faster: float = 1.0) -> float:
    """Return how often the permuted log-rank test finds a difference of two groups of n seeds at 5 %."""
    rng = np.random.default_rng(4)
    found = [log_rank(solve_times(rng, n, solve), solve_times(rng, n, solve, faster)) <= 0.05 for _ in range(count)]
    return float(np.mean(found))


def of_times(count: int) -> None:
    both, solve = (median_limits, greenwood), (0.99, 0.75, 0.55)
    table(
        "times",
        ["seeds", "99 %", "75 %", "55 %"],
        (
            [str(n), *(tuple(misses_of_median(of, count // 4, n, rate) for of in both) for rate in solve)]
            for n in (3, 5, 7, 10, 20)
        ),
    )
    table(
        "log_rank",
        ["seeds", "99 % solve", "60 % solve"],
        (
            [str(n), *(tuple(times_differ(count // 8, n, rate, of) for of in (1, 2)) for rate in (0.99, 0.6))]
            for n in (3, 5)
        ),
    )


if __name__ == "__main__":
    of_times(4000)
