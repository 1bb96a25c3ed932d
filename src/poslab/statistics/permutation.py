"""Exact tests by permutation: signs of paired differences, labels of two groups, and groups that succeed or fail.

All ways to choose signs or labels are counted, not drawn: sums of the two halves of the numbers are listed, and for
each of the one half those of the other that reach far enough are found by bisection. 40 numbers take a second.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MOST_EXACT = 40  # numbers of which all ways are counted; of more, DRAWN ways are drawn
DRAWN = 100_000
END = 0.1  # proportions this close to 0 or 1 count as failure or success in `all_or_nothing`

Alternative = Literal["two-sided", "less", "greater"]


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


def label_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p-value of the difference of two groups' means: the proportion of all ways to choose
    the first group among the values of both with a difference as large.

    For groups that need not be paired (Fisher 1935; Pitman 1937). Of 0 and 1 it is Fisher's exact test.
    """
    values = np.concatenate([np.asarray(first, dtype=float), np.asarray(second, dtype=float)])
    if len(values) > MOST_EXACT:
        return _drawn((np.asarray(first), np.asarray(second)), "independent", "two-sided")
    n, mean = len(first), values.mean()
    of_first, of_second = _halves(values - mean)
    parts = [(of_first[k], of_second[n - k]) for k in range(len(of_first)) if 0 <= n - k < len(of_second)]
    return _p_value(parts, float(sum(first) - n * mean), "two-sided")


def boschloo_test(first: int, second: int, n: int) -> float:
    """Return the two-sided p-value of `first` successes of n against `second` of n others, by Boschloo's exact test.

    Boschloo (1970), "Raised conditional level of significance for the 2x2 table", Statistica Neerlandica 24. Uniformly
    more powerful than Fisher's exact test: 5 of 5 against 0 of 5 give p = 0.002, not 0.008.
    """
    fewest, most = sorted((first, second))
    return 1.0 if fewest == most else _boschloo(most, fewest, n)


@lru_cache(maxsize=10_000)
def _boschloo(first: int, second: int, n: int) -> float:
    """Return twice the largest chance, over all success rates, of tables whose one-sided p of Fisher is no larger."""
    successes = np.arange(n + 1)
    fisher = stats.hypergeom.sf(successes[:, None] - 1, 2 * n, successes[:, None] + successes, n)
    extreme = fisher <= fisher[first, second] * (1 + 1e-9)
    rates = stats.binom.pmf(successes, n, np.linspace(0, 1, 1001)[:, None])  # (rates, n + 1)
    return min(1.0, 2 * float(np.einsum("ri,ij,rj->r", rates, extreme, rates, optimize=True).max()))


def all_or_nothing(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether every proportion of two groups is near 0 or near 1, and both ends occur."""
    values = np.asarray([*first, *second], dtype=float)
    high, low = values >= 1 - END, values <= END
    return bool(np.all(high | low) and high.any() and low.any())


def share_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p-value of two groups of proportions, paired by position.

    Groups that succeed or fail are counted (`boschloo_test`). Of others it is twice the smaller p of flipped signs and
    of exchanged labels: signs know that seeds are paired, labels show something from fewer seeds on.
    """
    if all_or_nothing(first, second):
        successes = [sum(value > 0.5 for value in values) for values in (first, second)]
        return boschloo_test(successes[0], successes[1], len(first))
    differences = np.subtract(first, second)
    return min(1.0, 2 * min(sign_flip_test(differences.tolist()), label_test(first, second)))


def signed_rank_test(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of Wilcoxon's signed-rank test, in which infinite differences have the last
    ranks."""
    return sign_flip_test(signed_ranks(differences))


def signed_ranks(differences: Sequence[float]) -> list[float]:
    """Return ranks of sizes, with the signs of the differences; infinite sizes share the last ones."""
    array = np.asarray(differences, dtype=float)
    return list(map(float, np.sign(array) * stats.rankdata(np.abs(array))))


def seeds_to_claim(comparisons: int, sides: int = 2, alpha: float = 0.05) -> int:
    """Return how many seeds that agree the sign-flip test needs under Holm's correction, for 1 or 2 sides."""
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
    parts: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], observed: float, alternative: Alternative
) -> float:
    """Return the share of sums a + b, of all pairs in the parts, that are as far from 0 as the observed one.

    The second array of each part is sorted. Sums that differ by rounding are equal.
    """
    ways = sum(len(a) * len(b) for a, b in parts)
    largest = max((float(np.abs(of).max()) for part in parts for of in part if len(of)), default=0.0)
    limit, rounding = abs(observed) if alternative == "two-sided" else observed, 1e-10 * max(largest, abs(observed))
    above = sum(int((len(b) - np.searchsorted(b, limit - rounding - a)).sum()) for a, b in parts)
    limit = -limit if alternative == "two-sided" else limit
    below = sum(int(np.searchsorted(b, limit + rounding - a, side="right").sum()) for a, b in parts)
    counted = {"two-sided": above + below, "greater": above, "less": below}[alternative]
    return min(1.0, counted / ways)


def _drawn(samples: tuple[NDArray[np.float64], ...], kind: str, alternative: Alternative) -> float:
    def statistic(*of: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        return np.asarray(of[0].mean(axis) - (of[1].mean(axis) if len(of) > 1 else 0.0))

    found = stats.permutation_test(
        samples,
        statistic,
        permutation_type=kind,
        n_resamples=DRAWN,
        batch=1000,
        alternative=alternative,
        rng=np.random.default_rng(0),
        vectorized=True,
    )
    return float(found.pvalue)
