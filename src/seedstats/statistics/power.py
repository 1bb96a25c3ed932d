"""Number of seeds for a study that is to show a difference.

The number grows with the square of the spread, and a pilot of few seeds knows the spread badly: a study of the number
that the pilot's own spread asks for is often too small. Browne (1995), "On the use of a pilot sample for sample size
determination", Statistics in Medicine 14, plans with an upper confidence limit of the standard deviation sd over n
seeds instead, of normal differences

    upper limit = sd sqrt((n - 1) / q),    q the (1 - ASSURANCE) quantile of chi-square with n - 1 degrees of freedom

so that the stated power is reached after the proportion ASSURANCE of all pilots.
"""

import math
from bisect import bisect_left
from typing import NamedTuple

from scipy import special

from seedstats.statistics.intervals import CONFIDENCE

MOST_SEEDS = 100_000  # `seeds_needed` looks no farther
ASSURANCE = 0.8


def seeds_needed(sd: float, effect: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the number of seeds that a two-sided paired t test needs to see a mean difference `effect` with this
    power.

    `sd` is the standard deviation of the differences, in the unit of `effect`. By the noncentral t distribution (Cohen
    1988, chapter 2); to see the effect in the wrong direction does not count. At least 2, at most MOST_SEEDS, which
    stands for "this many or more".
    """
    if sd == 0:
        return 2

    def power_with(n: int) -> float:
        # special.nctdtr is stats.nct.cdf, 40 times faster. It gives NaN for some shifts far above the critical value,
        # where the power is near 1; NaN is not below `power`, so the search rightly takes it as enough.
        critical, shift = special.stdtrit(n - 1, 1 - alpha / 2), effect / sd * math.sqrt(n)
        return float(1 - special.nctdtr(n - 1, shift, critical))

    return 2 + bisect_left(range(2, MOST_SEEDS), power, key=power_with)


class SeedsPlan(NamedTuple):
    """Numbers of seeds of a new study: for the ends of the confidence interval of the spread, and the number to plan
    with, for its upper limit at the confidence ASSURANCE."""

    low: int
    high: int
    assured: int


def plan_seeds(sd: float, pilot: int, effect: float, alpha: float = 0.05) -> SeedsPlan:
    """Return how many seeds a new study needs to see a mean difference `effect`, as far as a pilot tells.

    `sd` is the standard deviation of the paired differences over `pilot` seeds, at least 2, in the unit of `effect`;
    `alpha` and the power are those of `seeds_needed`. The effect's sign doesn't matter. Raises ValueError for a pilot
    of one seed, an sd that is negative or no number, and an effect of 0.
    """
    if not sd >= 0:
        raise ValueError(f"sd={sd}: must be a number, at least 0")
    if pilot < 2:
        raise ValueError(f"pilot={pilot}: must be at least 2, because one seed tells no spread")
    if not (math.isfinite(effect) and effect != 0):
        raise ValueError(f"effect={effect}: must be a finite number other than 0")
    tail = (1 - CONFIDENCE) / 2
    limits = (sd_limit(sd, pilot, probability) for probability in (tail, 1 - tail, ASSURANCE))
    return SeedsPlan(*(seeds_needed(limit, abs(effect), alpha) for limit in limits))


def sd_limit(sd: float, n: int, probability: float) -> float:
    """Return the limit that the true sd of normal values is below with this probability, from the sd of n of them."""
    return sd * math.sqrt((n - 1) / special.chdtri(n - 1, probability))
