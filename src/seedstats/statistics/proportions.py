"""Proportions of seeds: how many solve a task, or fail.

Each seed is one trial. Seeds that all agree are no certainty: of 5 seeds without a failure, a scheme that fails in 45 %
of all seeds is still one in twenty. Limits are those of Clopper & Pearson (1934), "The use of confidence or fiducial
limits illustrated in the case of the binomial", Biometrika 26, which hold for every true proportion.
Two schemes are compared by `seedstats.statistics.counts`.
"""

from dataclasses import dataclass

from scipy import special, stats

from seedstats.statistics.intervals import CONFIDENCE


@dataclass(frozen=True)
class Proportion:
    """Proportion of `count` in n seeds, with the limits of its two-sided interval."""

    count: int
    n: int
    low: float
    high: float


def proportion(count: int, n: int) -> Proportion:
    """Return the proportion of seeds that solve a task, with its exact two-sided interval."""
    interval = stats.binomtest(count, n).proportion_ci(CONFIDENCE, method="exact")
    return Proportion(count, n, float(interval.low), float(interval.high))


def at_most(count: int, n: int) -> float:
    """Return the one-sided upper limit of a proportion: 0 of 5 seeds failed, so up to 0.45 of all seeds may.

    The limit of the two-sided interval of `proportion` is higher (0.52), as it allows for an error on either side.
    """
    return 1.0 if count == n else float(special.betaincinv(count + 1, n - count, CONFIDENCE))
