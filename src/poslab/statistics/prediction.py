"""Prediction of the next paired difference, one run ahead instead of the mean; and what comparing in pairs saves.

For normal differences. The limits of the probability that the next difference is below 0 are those of the noncentral t
distribution: the mean's t statistic over n seeds has the noncentrality sqrt(n) mean / sd of the truth, and the
probability is that of a standard normal variable below -mean / sd (Reiser & Guttman 1986, "Statistical inference for
Pr(Y < X): the normal case", Technometrics 28).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from poslab.statistics.intervals import CONFIDENCE
from poslab.statistics.paired import ROUNDING


@dataclass(frozen=True)
class NextDifference:
    """Prediction of one further paired difference, first minus second, of the same unit.

    low, high: the prediction interval. probability: that the difference is below 0 (the first has the lower figure),
    with the limits probability_low and probability_high.
    """

    low: float
    high: float
    probability: float
    probability_low: float
    probability_high: float


def next_difference(differences: ArrayLike) -> NextDifference | None:
    """Predict the paired difference of one further seed from finite ones (n,).

    None with fewer than 2 seeds, or where all differences are alike: their spread is not known. `probability` is the
    estimate that is too high as often as too low.
    """
    array = np.asarray(differences, dtype=float)
    n = array.size
    if n < 2 or np.ptp(array) <= ROUNDING * float(np.abs(array).max()):
        return None
    mean, sd = float(array.mean()), float(array.std(ddof=1))
    tails = (1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2
    half = float(special.stdtrit(n - 1, tails[-1])) * sd * math.sqrt(1 + 1 / n)
    noncentral = special.nctdtrinc(n - 1, tails, -mean / sd * math.sqrt(n))  # its value at the highest tail is lowest
    high, middle, low = (float(p) for p in special.ndtr(noncentral / math.sqrt(n)))
    return NextDifference(mean - half, mean + half, middle, low, high)


@dataclass(frozen=True)
class Pairing:
    """Correlation of two groups over common seeds, with its limits (-1 and 1 with fewer than 4 seeds).

    variance_ratio: the variance of the difference without pairing, divided by that of the paired differences: so many
    times as many seeds would tell as much, unpaired.
    """

    correlation: float
    low: float
    high: float
    variance_ratio: float


def pairing(first: ArrayLike, second: ArrayLike) -> Pairing | None:
    """Return how alike two groups' finite figures (n,) of the same seeds move, by Pearson's correlation.

    The interval is Fisher's (1921), of the inverse hyperbolic tangent of the correlation. None with fewer than 3 seeds,
    or where a group's figures or the differences are all alike.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    n = a.size
    if n < 3 or any(np.ptp(values) <= ROUNDING * max(1.0, float(np.abs(values).max())) for values in (a, b, a - b)):
        return None
    found = stats.pearsonr(a, b)
    if abs(found.statistic) > 1 - ROUNDING:  # nothing is left to be uncertain of
        low = high = float(found.statistic)
    else:
        low, high = map(float, found.confidence_interval(CONFIDENCE))
    ratio = float((a.var(ddof=1) + b.var(ddof=1)) / (a - b).var(ddof=1))
    return Pairing(float(found.statistic), low, high, ratio)
