"""Exact tests by permutation: signs of paired differences, and labels of two groups.

All ways to choose signs or labels are counted, not drawn: sums of the two halves of the numbers are listed, and for
each of the one half those of the other that reach far enough are found by bisection. 40 numbers take a second.
"""

import math
from collections.abc import Sequence
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MOST_EXACT = 40  # numbers of which all ways are counted; of more, DRAWN ways are drawn
DRAWN = 100_000

Alternative = Literal["two-sided", "greater"]


def sign_flip_test(differences: Sequence[float], alternative: Alternative = "two-sided") -> float:
    """Return the exact p-value of paired differences: the proportion of all 2**n sign choices with a mean as far from
    0.

    If two groups were alike, each seed's difference could as well have had the other sign (Fisher 1935, section 21), so
    n seeds that agree give p = 2 / 2**n. Differences of 0 are kept; they make no difference.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) > MOST_EXACT:
        return _drawn((values,), "samples", alternative)
    sums = [np.sort(np.concatenate(half)) for half in _halves(2 * values)]
    total = values.sum()
    return _p_value([(sums[0] - total, sums[1])], total, alternative)


def label_test(first: Sequence[float], second: Sequence[float], alternative: Alternative = "two-sided") -> float:
    """Return the exact p-value of the difference of two groups' means: the proportion of all ways to choose the first
    group among the values of both with a difference as large.

    For groups that need not be paired (Fisher 1935; Pitman 1937). Of 0 and 1 it is Fisher's exact test.
    """
    values = np.concatenate([np.asarray(first, dtype=float), np.asarray(second, dtype=float)])
    if len(values) > MOST_EXACT:
        return _drawn((np.asarray(first), np.asarray(second)), "independent", alternative)
    n, mean = len(first), values.mean()
    first_half, second_half = _halves(values - mean)
    halves = [(first_half[k], second_half[n - k]) for k in range(len(first_half)) if 0 <= n - k < len(second_half)]
    return _p_value(halves, float(sum(first) - n * mean), alternative)


def share_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p-value of two groups of proportions, paired by position: twice the smaller one of
    flipped signs, which know that seeds are paired, and exchanged labels, which show something from fewer seeds on."""
    signs = sign_flip_test(np.subtract(first, second).tolist())
    return min(1.0, 2 * min(signs, label_test(first, second)))


def signed_ranks(differences: Sequence[float]) -> list[float]:
    """Return ranks of sizes, with the signs of the differences; infinite sizes share the last ones. Their sign-flip
    test is Wilcoxon's signed-rank test."""
    array = np.asarray(differences, dtype=float)
    return list(map(float, np.sign(array) * stats.rankdata(np.abs(array))))


def seeds_to_claim(comparisons: int, sides: int = 2, alpha: float = 0.05, others: int = 0) -> int:
    """Return how many seeds that agree the sign-flip test needs under Holm's correction, for 1 or 2 sides; beside so
    many other seeds, which none of them is below, the label test."""
    if others:
        return next(n for n in count(1) if sides * comparisons / math.comb(n + others, n) < alpha)
    return math.floor(math.log2(sides * comparisons / alpha)) + 1


def _halves(values: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return for the first and the second half of the values the sums of all their subsets, by the subsets' sizes."""
    middle = len(values) // 2
    return _subset_sums(values[:middle]), _subset_sums(values[middle:])


def _subset_sums(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    sums = [np.zeros(1)]
    for value in values:
        without, including = [*sums, np.empty(0)], [np.empty(0), *(of + value for of in sums)]
        sums = [np.concatenate(pair) for pair in zip(without, including, strict=True)]
    return [np.sort(of) for of in sums]


def _p_value(
    halves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], observed: float, alternative: Alternative
) -> float:
    """Return the share of sums a + b, of all pairs in the parts, that are as far from 0 as the observed one.

    The second array of each part is sorted. Sums that differ by rounding are equal.
    """
    ways = sum(len(a) * len(b) for a, b in halves)
    largest = max((float(np.abs(of).max()) for part in halves for of in part if len(of)), default=0.0)
    limit = (abs(observed) if alternative == "two-sided" else observed) - 1e-10 * max(largest, abs(observed))
    counted = sum(int((len(b) - np.searchsorted(b, limit - a)).sum()) for a, b in halves)
    if alternative == "two-sided":
        counted += sum(int(np.searchsorted(b, -limit - a, side="right").sum()) for a, b in halves)
    return min(1.0, counted / ways)


def _drawn(samples: tuple[NDArray[np.float64], ...], kind: str, alternative: Alternative) -> float:
    def statistic(*of: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        return np.asarray(of[0].mean(axis) - (of[1].mean(axis) if len(of) > 1 else 0.0))

    result = stats.permutation_test(
        samples,
        statistic,
        permutation_type=kind,
        n_resamples=DRAWN,
        batch=1000,
        alternative=alternative,
        rng=np.random.default_rng(0),
        vectorized=True,
    )
    return float(result.pvalue)
