"""Prediction of the next paired difference from those of the past: one run ahead instead of the mean.

For normal differences. The limits of the probability that the next difference is below 0 are those of the noncentral t
distribution: the mean's t statistic over n seeds has the noncentrality sqrt(n) mean / sd of the truth, and the
probability is that of a standard normal variable below -mean / sd (Reiser & Guttman 1986, "Statistical inference for
Pr(Y < X): the normal case", Technometrics 28).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

ROUNDING = 1e-12  # spreads up to here, relative to the largest difference, are rounding


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
    n: int


def next_difference(differences: ArrayLike, confidence: float = 0.95) -> NextDifference | None:
    """Predict the paired difference of one further seed from finite ones (n,).

    None with fewer than 2 seeds, or where all differences are alike: their spread is not known. `probability` is the
    estimate that is too high as often as too low.
    """
    array = np.asarray(differences, dtype=float)
    n = array.size
    if n < 2 or np.ptp(array) <= ROUNDING * float(np.abs(array).max()):
        return None
    mean, sd = float(array.mean()), float(array.std(ddof=1))
    tails = (1 - confidence) / 2, 0.5, (1 + confidence) / 2
    half = float(special.stdtrit(n - 1, tails[-1])) * sd * math.sqrt(1 + 1 / n)
    noncentral = special.nctdtrinc(n - 1, tails, -mean / sd * math.sqrt(n))  # its value at the highest tail is lowest
    high, middle, low = (float(p) for p in special.ndtr(noncentral / math.sqrt(n)))
    return NextDifference(mean - half, mean + half, middle, low, high, n)
