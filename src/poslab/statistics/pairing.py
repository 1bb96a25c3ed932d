"""Correlation of two groups over their common seeds, and what comparing them seed by seed saved."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True)
class Pairing:
    """Correlation of two groups over n common seeds, with its limits (-1 and 1 with fewer than 4 seeds).

    variance_ratio: the variance of the difference without pairing, divided by that of the paired differences.
    equivalent_seeds: how many seeds each group would need, unpaired, to know the difference of the means as well.
    """

    correlation: float
    low: float
    high: float
    variance_ratio: float
    equivalent_seeds: float
    n: int


def pairing(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Pairing | None:
    """Return how alike two groups' finite figures (n,) of the same seeds move, by Pearson's correlation.

    The interval is Fisher's (1921), of the inverse hyperbolic tangent of the correlation. None with fewer than 3 seeds,
    or where a group's figures or the differences are all alike.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    n = a.size
    if n < 3 or any(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())) for values in (a, b, a - b)):
        return None
    found = stats.pearsonr(a, b)
    if abs(found.statistic) > 1 - 1e-12:  # nothing is left to be uncertain of
        low = high = float(found.statistic)
    else:
        low, high = map(float, found.confidence_interval(confidence))
    ratio = float((a.var(ddof=1) + b.var(ddof=1)) / (a - b).var(ddof=1))
    return Pairing(float(found.statistic), low, high, ratio, n * ratio, n)
