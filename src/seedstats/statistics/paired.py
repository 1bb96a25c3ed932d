"""Differences of two groups, paired by seed.

Runs with the same seed see the same batches in the same order, so groups of runs are compared in pairs, seed by seed:
effects of a seed on all groups cancel. Each comparison stands by itself here, from FEWEST_SEEDS seeds on; p-values and
intervals of several are corrected by `seedstats.statistics.families`.

Losses, and whatever else has no ends, are compared by a paired t test. Its sd is that of the differences, but no less
than half of that which is usual among the groups (`usual_sd`): three seeds of one pair are often alike by chance, the
more so of schemes that come out in one of two ways, and the t test takes that for certainty. Small standard deviations
are limited for the same reason by Tusher, Tibshirani & Chu (2001), "Significance analysis of microarrays", PNAS 98.

Proportions, such as that of solved examples, end at 0 and 1, and are often there. Two groups whose every seed succeeds
or fails are compared as counts, by an exact test with its interval (`statistics.counts`). Other proportions are
claimed only where both the t test and an exact test show a difference (`permutation.share_test`); their p-value is the
larger one.

Where differences are alike in all seeds, nothing is known of their spread: no interval is given, and the sign-flip test
stands alone, of losses too.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from seedstats.statistics.counts import TwoCounts, counts_of
from seedstats.statistics.intervals import CONFIDENCE, Interval, StudentT
from seedstats.statistics.outcomes import SeedOutcomes, outcomes_of
from seedstats.statistics.permutation import share_test, sign_flip_test, signed_ranks

FEWEST_SEEDS = 3  # of a claim; from two, more than twice as many would be false (data/studies/simulated_claims.md)
_ROUNDING = 1e-12  # spreads and differences up to here, relative to the largest figure, are rounding
_NOTHING = 1e-150  # below this, squares of differences are 0

Pair = TypeVar("Pair")
Figures = Mapping[int, float]  # of one group, by seed


@dataclass(frozen=True)
class Difference:
    """Mean of (group - baseline) over n common seeds; of losses, negative where the group is better.

    Seeds with a diverged or missing run are none of the n; their effect on the p-value is in
    `statistics.outcomes`. `sd` is the standard deviation of the differences, `p_value` and `interval` are those
    of one among so many `comparisons`; None with fewer than FEWEST_SEEDS seeds, `interval` also where all seeds differ
    alike. `method` gives the interval at other confidences. With n = 1 only the mean is known, with n = 0 nothing.
    """

    mean: float | None
    interval: Interval | None
    sd: float | None
    p_value: float | None
    n: int
    comparisons: int = 1
    outcomes: SeedOutcomes = field(default_factory=SeedOutcomes)
    method: StudentT | TwoCounts | None = None

    @property
    def tested_sd(self) -> float | None:
        """Return the sd that the test took: no less than half of that which is usual among the groups."""
        return self.method.error * math.sqrt(self.n) if isinstance(self.method, StudentT) else self.sd

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
        interval, method = self.interval and self.interval.reversed, self.method and self.method.reversed
        return replace(self, mean=mean, interval=interval, outcomes=self.outcomes.reversed, method=method)

    def equal_within(self, margin: float) -> bool:
        """Return whether the groups are shown to be equal but for a margin: a difference that is not shown is no
        evidence of that.

        By two one-sided tests (Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15), which is to ask
        whether the interval at 1 - 2 alpha lies within it. alpha is shared by all comparisons: of a pair
        at most one of "better" and "equal" can be false.
        """
        if self.mean is None or self.method is None or not self.outcomes.sound:
            return False
        low, high = self.method.interval(self.mean, 1 - 2 * (1 - CONFIDENCE) / self.comparisons)
        return -margin < low and high < margin

    def corrected(self, p_value: float | None, comparisons: int) -> "Difference":
        """Return the difference as one of several comparisons, with the p-value that it has among them.

        The interval becomes that of Bonferroni: all intervals cover at once with a chance of at least CONFIDENCE. A
        p-value corrected step by step may show a difference whose interval reaches beyond 0; it then ends there.
        """
        d = replace(self, p_value=p_value, comparisons=comparisons)
        if self.mean is None or self.method is None:
            return d
        low, high = self.method.interval(self.mean, 1 - (1 - CONFIDENCE) / comparisons)
        if d.significant and d.outcomes.sound:
            low, high = (max(0.0, low), high) if self.mean > 0 else (low, min(0.0, high))
        return replace(d, interval=Interval(low, high))


def paired(
    pairs: Mapping[Pair, tuple[Figures, Figures]],
    *,
    proportion: bool = False,
    planned: Mapping[Pair, Collection[int]] | None = None,
    groups: int = 0,
) -> dict[Pair, Difference]:
    """Compare the first of each pair with the second, over the seeds that they have in common, each pair by itself.

    Figures are finite, or infinite of seeds that diverged. planned: the seeds planned for a pair; those that are not
    there are named in `outcomes`. groups: how many groups were planned, for `usual_sd`.
    """
    usual = usual_sd(list({id(group): group for pair in pairs.values() for group in pair}.values()), groups)
    return {name: _paired(*pair, proportion, (planned or {}).get(name, ()), usual) for name, pair in pairs.items()}


def usual_sd(groups: Sequence[Figures], planned: int = 0) -> float:
    """Return the sd of differences over common seeds that is usual among some groups; 0 if there are fewer than three.

    It is a quantile over all pairs of groups: up to four seeds the median, with n the 2 / n quantile, as the more seeds
    there are, the less likely is it by chance that some pairs are much more alike than others. Pairs with fewer than
    FEWEST_SEEDS common seeds, or of the groups that were planned beside those given, count as the widest of the others.
    """
    seeds = sorted({seed for group in groups for seed in group})
    figures = np.array([[group.get(seed, math.nan) for seed in seeds] for group in groups], dtype=float)
    figures[~np.isfinite(figures)] = math.nan
    most, spreads, total = 0, list[float](), math.comb(max(planned, len(groups)), 2)
    for place in range(1, len(groups)):
        differences = figures[:place] - figures[place]
        counts = np.isfinite(differences).sum(axis=1)
        enough = counts >= FEWEST_SEEDS
        spreads += np.nanstd(differences[enough], axis=1, ddof=1).tolist()
        most = max(most, int(counts.max()))
    if not spreads or total < 3:
        return 0.0
    return float(np.quantile(spreads + [max(spreads)] * (total - len(spreads)), min(0.5, 2 / most)))


def _paired(group: Figures, baseline: Figures, proportion: bool, planned: Collection[int], usual: float) -> Difference:
    outcomes = outcomes_of(group, baseline, planned)
    seeds = sorted(seed for seed in group.keys() & baseline.keys() if math.isfinite(group[seed] - baseline[seed]))
    finite = np.array([[of[seed] for seed in seeds] for of in (group, baseline)], dtype=float)  # (2, n)
    d = replace(_test_finished(finite, proportion, usual), outcomes=outcomes)
    if not any(outcomes.diverged) or outcomes.planned < FEWEST_SEEDS:
        return d.corrected(d.p_value, 1)
    p_value = sign_flip_test(signed_ranks(outcomes.differences))
    if outcomes.favours_diverged and d.p_value is not None:
        p_value = max(p_value, d.p_value)
    return d.corrected(p_value, 1)


def _test_finished(figures: NDArray[np.float64], proportion: bool, usual: float) -> Difference:
    """Return the difference of figures (2, n), without its interval."""
    n, (a, b) = figures.shape[1], figures
    if n == 0:
        return Difference(None, None, None, None, 0)
    rounding = max(_NOTHING, _ROUNDING * float(np.abs(figures).max()))
    mean = float((a - b).mean())
    if abs(mean) <= rounding:
        mean = 0.0
    alike = float(np.ptp(a - b)) <= rounding  # the t test would divide by zero, or by rounding
    if n == 1:
        return Difference(mean, None, None, None, n)
    sd = 0.0 if alike else float((a - b).std(ddof=1))
    if n < FEWEST_SEEDS:
        return Difference(mean, None, sd, None, n)
    counts = counts_of(a.tolist(), b.tolist()) if proportion else None
    if counts:
        return Difference(mean, None, sd, counts.p_value, n, method=counts)
    if alike:
        return Difference(mean, None, sd, sign_flip_test((a - b).tolist()) if mean else 1.0, n)
    error = max(sd, usual / 2) / math.sqrt(n)
    p_value = 2 * float(special.stdtr(n - 1, -abs(mean) / error))
    if proportion:
        p_value = max(p_value, share_test(a.tolist(), b.tolist()))
    limits = (-1.0, 1.0) if proportion else ()
    return Difference(mean, None, sd, p_value, n, method=StudentT(error, n - 1, *limits))
