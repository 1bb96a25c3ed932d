"""Proportions of seeds: how many solve a task, or fail.

Each seed is one trial. Seeds that all agree are no certainty: of 5 seeds without a failure, a scheme that fails in 45 %
of all seeds is still one in twenty. Limits are those of Clopper & Pearson (1934), "The use of confidence or fiducial
limits illustrated in the case of the binomial", Biometrika 26, which hold for every true proportion.

Two schemes are compared unpaired, as a seed has no luck in common that solves a task for both. Boschloo (1970), "Raised
conditional level of significance for the 2x2-table when testing the equality of two probabilities", Statistica
Neerlandica 24, takes Fisher's exact p-value as statistic and its largest probability over all true proportions as
p-value: never above Fisher's, and exact, too. 5 of 5 against 0 of 5 gives 0.002, by Fisher's test 0.008.
"""

from dataclasses import dataclass
from functools import cache

from scipy import special, stats


@dataclass(frozen=True)
class Proportion:
    """Proportion of `count` in n seeds, with the limits of its two-sided interval."""

    count: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.count / self.n


def proportion(count: int, n: int, confidence: float = 0.95) -> Proportion:
    """Return the proportion of seeds that solve a task, with its exact two-sided interval. ValueError without seeds."""
    interval = stats.binomtest(count, n).proportion_ci(confidence, method="exact")
    return Proportion(count, n, float(interval.low), float(interval.high))


def at_most(count: int, n: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper limit of a proportion: 0 of 5 seeds failed, so up to 0.45 of all seeds may.

    The limit of the two-sided interval of `proportion` is higher (0.52), as it allows for an error on either side.
    """
    return 1.0 if count == n else float(special.betaincinv(count + 1, n - count, confidence))


@cache
def proportions_differ(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the two-sided p-value of Boschloo's exact test that two groups solve a task equally often.

    first of of_first seeds against second of of_second; twice the smaller of the one-sided p-values.
    """
    solved, others = [first, second], [of_first - first, of_second - second]
    return float(stats.boschloo_exact([solved, others]).pvalue)
