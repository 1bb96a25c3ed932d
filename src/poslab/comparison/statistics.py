"""Statistics of comparisons of runs: of their losses in nats per token, or of any other Metric.

Runs with the same seed see the same batches in the same order, so groups of runs are compared in pairs, seed by seed:
effects of a seed on all groups cancel. Several groups against one baseline are several chances to be wrong, so the
p-values are corrected by Holm's method (Holm 1979): the chance of any false claim is at most 1 - CONFIDENCE.

Intervals are those of one comparison, uncorrected. An interval can therefore exclude 0 where the corrected p-value
claims nothing, never the other way round; `sentence` says so where it happens.

Losses are compared by a paired t test. Proportions, such as that of solved examples, end at 0 and 1, and are often
there: where all seeds agree, the t test takes that for certainty and would claim anything, though the next seed may
fail. So a proportion is claimed only where an exact sign-flip test (Fisher 1935, section 21) agrees: if the two groups
were alike, each seed's difference could as well have had the other sign, so n seeds that all agree give p = 2 / 2**n
and fewer than six can't show anything. Its p-value is the larger of the two. Intervals end where proportions do.

Where differences are alike in all seeds, nothing is known of their spread: no interval is given, and the sign-flip test
stands alone, of losses too. Proportions do come out alike; losses that differ by the same amount to the last digit were
hardly trained, and `sentence` says so.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from poslab.comparison.missing_seeds import SeedOutcomes, outcomes_of, signed_ranks
from poslab.tasks import Metric
from poslab.tasks.metric import loss_metric

NATS = loss_metric(None)
CONFIDENCE = 0.95  # of intervals and claims
MOST_FLIPPED = 12  # seeds whose signs are flipped in all ways; of more, 2**12 ways are drawn
ROUNDING = 1e-12  # nats: spreads and differences up to here, relative to losses above 1, are rounding
SMALLEST_BLOCKS = 20  # with fewer blocks, a bootstrap interval is clearly too narrow

Pair = TypeVar("Pair")
Figures = Mapping[int, float]  # of one group, by seed


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """Mean with its interval and the standard deviation of the n values.

    None stands for what cannot be known from so few values, or from proportions that are all alike.
    """

    mean: float
    interval: Interval | None
    sd: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Mean of (group - baseline) over n common seeds; of losses, negative where the group is better.

    Seeds with a diverged or missing run are none of the n; their effect on the p-value is in
    `poslab.comparison.missing_seeds`. `sd` is the standard deviation of the differences, `p_value` is corrected for the
    number of `comparisons`, and the interval is not; None where all seeds differ alike. With n = 1 only the mean is
    known, with n = 0 nothing.
    """

    mean: float | None
    interval: Interval | None
    sd: float | None
    p_value: float | None
    n: int
    comparisons: int = 1
    outcomes: SeedOutcomes = field(default_factory=SeedOutcomes)

    @property
    def leaning(self) -> float:
        """Return a number below 0 if the group has the lower figures, above 0 if it has the higher ones."""
        return self.outcomes.leaning if any(self.outcomes.diverged) else self.mean or 0.0

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < 1 - CONFIDENCE

    @property
    def reversed(self) -> "Difference":
        """Return the difference (baseline - group)."""
        mean = None if self.mean is None else -self.mean
        interval = self.interval and Interval(-self.interval.high, -self.interval.low)
        return replace(self, mean=mean, interval=interval, outcomes=self.outcomes.reversed)


def estimate(values: Iterable[float], metric: Metric = NATS) -> Estimate:
    """Estimate the mean of finite, independent values, such as one group's losses, with its t interval."""
    array = np.array(list(values))
    n, mean = len(array), float(array.mean())
    if n == 1:
        return Estimate(mean, None, None, n)
    sd = float(array.std(ddof=1))
    return Estimate(mean, _interval(mean, sd, n, 0.0 if metric.is_proportion else None), sd, n)


def differences(
    values: Mapping[str, Figures],
    baseline: str,
    metric: Metric = NATS,
    planned: Mapping[str, Collection[int]] | None = None,
    family: int = 0,
) -> dict[str, Difference]:
    """Compare every other group with the baseline, as `paired` does; `values` holds the figures of each group."""
    pairs = {name: (of, values[baseline]) for name, of in values.items() if name != baseline}
    return paired(pairs, metric, planned, family)


def paired(
    pairs: Mapping[Pair, tuple[Figures, Figures]],
    metric: Metric = NATS,
    planned: Mapping[Pair, Collection[int]] | None = None,
    family: int = 0,
) -> dict[Pair, Difference]:
    """Compare the first of each pair with the second, over the seeds that they have in common.

    planned: the seeds planned for a pair. family: how many pairs were planned; at least so many count.

    The p-values are of paired two-sided t tests, of proportions the larger of that and the exact sign-flip test's,
    corrected over all pairs with at least 2 seeds in common. Where all differences are alike up to rounding, the t test
    has no value and the sign-flip test stands alone. Figures are finite, or infinite of seeds that diverged. A pair
    whose planned seeds are not all there has no p-value.
    """
    alone = {name: _paired(*pair, metric, (planned or {}).get(name, ())) for name, pair in pairs.items()}
    testable = {name: d for name, d in alone.items() if d.p_value is not None or d.outcomes.planned > 1}
    tested = max(1, family, len(testable))
    # Whoever is missing or diverged counts, but takes nothing from the family: no claim on others may come of it.
    usual = {name: 1.0 if d.p_value is None or any(d.outcomes.diverged) else d.p_value for name, d in testable.items()}
    corrected = holm(usual, tested)
    return {
        name: replace(d, p_value=_corrected(d, corrected.get(name, 1.0), tested), comparisons=tested)
        for name, d in alone.items()
    }


def _corrected(d: Difference, by_holm: float, tested: int) -> float | None:
    if d.p_value is None:
        return None
    return min(1.0, tested * d.p_value) if any(d.outcomes.diverged) else by_holm


def sign_flip_test(
    differences: Sequence[float], alternative: Literal["two-sided", "less", "greater"] = "two-sided"
) -> float:
    """Return the exact p-value of paired differences: the proportion of all 2**n sign choices with a mean as far from
    0.

    Differences of 0 are kept; they make no difference. Beyond MOST_FLIPPED of them, sign choices are drawn.
    """
    result = stats.permutation_test(
        (np.asarray(differences, dtype=float),),
        np.mean,
        permutation_type="samples",
        n_resamples=2**MOST_FLIPPED,
        alternative=alternative,
        rng=np.random.default_rng(0),
        vectorized=True,
    )
    return float(result.pvalue)


def signed_rank_test(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of Wilcoxon's signed-rank test, in which infinite differences have the last
    ranks."""
    return sign_flip_test(signed_ranks(differences))


def token_difference(first: ArrayLike, second: ArrayLike, *, block: int = 16, resamples: int = 9999) -> Estimate:
    """Estimate the mean of (first - second) over finite losses of the same tokens, in text order, by two checkpoints.

    The interval is a bootstrap percentile interval. Neighbouring tokens are alike, so that not tokens but contiguous,
    non-overlapping blocks of at least `block` tokens are drawn (Carlstein 1986); `block` should exceed the distance
    over which losses are correlated. None with fewer than SMALLEST_BLOCKS blocks. It says how sure the difference
    between these two checkpoints is on held-out text of this corpus, and nothing about other seeds. `sd` is that of the
    tokens. The same arrays give the same interval.
    """
    difference = np.subtract(first, second)
    n, mean = len(difference), float(difference.mean())
    sd = float(difference.std(ddof=1)) if n > 1 else None
    blocks = n // block
    if blocks < SMALLEST_BLOCKS:
        return Estimate(mean, None, sd, n)
    interval = stats.bootstrap(
        (block_means(difference, blocks),),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // blocks),  # a million numbers, 8 MB, at a time
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(mean, Interval(float(interval.low), float(interval.high)), sd, n)


def block_means(values: ArrayLike, blocks: int) -> NDArray[np.float64]:
    """Return means (..., B) of contiguous blocks of values (..., N).

    Block lengths differ by at most 1; means are weighted so that their mean is exactly that of the values.
    """
    array = np.asarray(values, dtype=float)
    n, mean = array.shape[-1], array.mean(-1, keepdims=True)
    return mean + np.add.reduceat(array - mean, np.arange(blocks) * n // blocks, axis=-1) * blocks / n


def seeds_to_claim(comparisons: int, sides: int = 2) -> int:
    """Return how many seeds that agree the sign-flip test needs under Holm's correction, for 1 or 2 sides."""
    return math.floor(math.log2(sides * comparisons / (1 - CONFIDENCE))) + 1


def _paired(group: Figures, baseline: Figures, metric: Metric, planned: Collection[int]) -> Difference:
    """Compare two groups over their common seeds; the p-value is not yet corrected."""
    outcomes = outcomes_of(group, baseline, planned)
    d = replace(_survivors(group, baseline, metric), outcomes=outcomes)
    if outcomes.missing:
        return replace(d, p_value=None)
    if not any(outcomes.diverged) or outcomes.planned < 2:
        return d
    p_value = signed_rank_test(outcomes.differences)
    if outcomes.favours_diverged and d.p_value is not None:
        p_value = max(p_value, d.p_value)
    return replace(d, p_value=p_value)


def _survivors(group: Figures, baseline: Figures, metric: Metric) -> Difference:
    """Return the difference over the seeds of which both have a finite figure."""
    seeds = sorted(seed for seed in group.keys() & baseline.keys() if math.isfinite(group[seed] - baseline[seed]))
    a, b = (np.array([of_seeds[seed] for seed in seeds], dtype=float) for of_seeds in (group, baseline))
    if not seeds:
        return Difference(None, None, None, None, 0)
    rounding = ROUNDING * max(1.0, float(np.abs([a, b]).max()))
    mean = float((a - b).mean())
    if abs(mean) <= rounding:
        mean = 0.0
    if len(seeds) == 1:
        return Difference(mean, None, None, None, 1)
    alike = float(np.ptp(a - b)) <= rounding  # the t test would divide by zero, or by rounding
    sd = 0.0 if alike else float((a - b).std(ddof=1))
    p_value = 0.0 if alike else float(stats.ttest_rel(a, b).pvalue)
    if metric.is_proportion or alike:
        p_value = max(p_value, sign_flip_test(a - b) if mean else 1.0)
    interval = _interval(mean, sd, len(seeds), -1.0 if metric.is_proportion else None)
    return Difference(mean, interval, sd, p_value, len(seeds))


def _interval(mean: float, sd: float, n: int, least: float | None) -> Interval | None:
    """Return the t interval of a mean, None if all values are alike.

    For proportions, or differences of them, which lie between `least` and 1, it is cut there.
    """
    if not sd:
        return None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * sd / math.sqrt(n)
    if least is None:
        return Interval(mean - half, mean + half)
    return Interval(max(least, mean - half), min(1.0, mean + half))


def holm(p_values: Mapping[Pair, float], family: int = 0) -> dict[Pair, float]:
    """Return p-values corrected by Holm's method. family: the planned number of tests; those not run have p = 1."""
    corrected: dict[Pair, float] = {}
    largest, family = 0.0, max(family, len(p_values))
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (family - rank) * p_values[name]))
        corrected[name] = largest
    return corrected
