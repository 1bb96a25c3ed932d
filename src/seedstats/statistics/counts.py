"""Two groups of n runs each that succeed or fail: exact test and exact interval of the difference of their chances.

Approximate intervals, Wilson's and Newcombe's among them, miss far more often than they say where chances are near 0 or
1, the more so at the high confidences that many comparisons need. Here each difference d is tested with the exact
distribution of both counts: the p-value is the largest one over all pairs of chances that differ by d (Barnard 1947;
Suissa & Shuster 1985), and the interval holds all differences that are not rejected (Chan & Zhang 1999, "Test-based
exact confidence intervals for the difference of two binomial proportions", Biometrics 55). Tables are ordered by the
distance of the difference from d in its standard errors, with one success and one failure added to each group (Agresti
& Caffo 2000).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from seedstats.statistics.intervals import Interval

MOST_RUNS = 40  # of a group; tables of more take too long
STEPS = 200  # from a difference of -1 to one of 1
END = 0.1  # proportions this close to 0 or 1 count as failure or success


@dataclass(frozen=True)
class TwoCounts:
    """Successes of two independent groups of n runs each."""

    first: int
    second: int
    n: int

    @property
    def reversed(self) -> "TwoCounts":
        return TwoCounts(self.second, self.first, self.n)

    @property
    def p_value(self) -> float:
        """Return the two-sided p-value of equal chances: 5 of 5 against 0 of 5 give 0.002."""
        equal = _p_values(self.n)[STEPS // 2]
        return min(1.0, 2 * float(min(equal[self.first, self.second], equal[self.second, self.first])))

    def interval(self, mean: float, confidence: float) -> Interval:
        """Return the interval of the first chance less the second one, to 0.01; it contains `mean`."""
        low = _lowest(self.first, self.second, self.n, confidence)
        high = -_lowest(self.second, self.first, self.n, confidence)
        return Interval(min(low, mean), max(high, mean))


def counts_of(first: Sequence[float], second: Sequence[float]) -> TwoCounts | None:
    """Return the successes in two groups of proportions, if each is near 0 or near 1 and both ends occur."""
    high = np.array([first, second]) >= 1 - END
    low = np.array([first, second]) <= END
    if not np.all(high | low) or high.all() or low.all() or len(first) > MOST_RUNS:
        return None
    return TwoCounts(int(high[0].sum()), int(high[1].sum()), len(first))


def _lowest(first: int, second: int, n: int, confidence: float) -> float:
    """Return the highest difference below which all are rejected."""
    accepted = _p_values(n)[:, first, second] > (1 - confidence) / 2
    return max(0, int(accepted.argmax()) - 1) * 2 / STEPS - 1


@lru_cache(maxsize=MOST_RUNS)
def _p_values(n: int) -> NDArray[np.float64]:
    """Return one-sided p-values (STEPS + 1, n + 1, n + 1) for each difference and both counts: whether the first chance
    exceeds the second one by more."""
    successes = np.arange(n + 1)
    share = (successes + 1) / (n + 2)
    error = np.sqrt((share * (1 - share))[:, None] + share * (1 - share))
    p_values = np.empty((STEPS + 1, n + 1, n + 1))
    for step, difference in enumerate(np.linspace(-1, 1, STEPS + 1)):
        distance = np.round((share[:, None] - share - difference) / error, 9).ravel()
        order = np.argsort(-distance)
        second = np.linspace(max(0.0, -difference), min(1.0, 1 - difference), 101)[:, None]
        chances = [stats.binom.pmf(successes, n, chance) for chance in (second + difference, second)]
        joint = (chances[0][:, :, None] * chances[1][:, None, :]).reshape(len(second), -1)
        reached = joint[:, order].cumsum(1).max(0)
        last = np.searchsorted(-distance[order], -distance, side="right") - 1  # tables as far away count, too
        p_values[step] = reached[last].reshape(n + 1, n + 1)
    return p_values
