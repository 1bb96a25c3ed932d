"""Best set: the groups that are not shown to be worse than any other.

One group is truly the best (of several that tie, each is). It is wrongly left out where one of the k - 1 others seems
better, so each group is compared with every other one by a one-sided test at (1 - confidence) / (k - 1): the set holds
the best group in at least `confidence` of all sweeps, and no further correction is needed, as only one group is best.
The idea is that of Hsu (1984), "Constrained simultaneous confidence intervals for multiple comparisons with the best",
Annals of Statistics 12, with other tests, chosen by simulation: Hsu's common variance of all groups loses the best one
in 23 % of sweeps where one of 18 groups is five times as noisy as the others; the model confidence set of Hansen, Lunde
& Nason (2011) loses it in 15 % with 3 seeds, as its bootstrap needs many; and Dunnett's joint distribution gains next
to nothing over Bonferroni's correction where each pair has a spread of its own.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special, stats

from poslab.statistics.proportions import proportions_differ

Figures = Mapping[int, float]  # of one group, by seed


@dataclass(frozen=True)
class BestSet:
    """Groups not shown to be worse than any other, the best mean first.

    p_values: of each group, that of "this group is the best", corrected for the comparisons with all others.
    """

    members: tuple[str, ...]
    p_values: Mapping[str, float]
    confidence: float


def best_set(
    figures: Mapping[str, Figures], *, lower: bool = True, proportion: bool = False, confidence: float = 0.95
) -> BestSet:
    """Return the groups that are not shown to be worse than any other group.

    figures: finite ones by group and seed; a group whose runs diverged is left out by the caller. lower: whether lower
    figures are better. Pairs are tested over their common seeds by paired t tests; proportions, which are often alike
    in all seeds, unpaired: by Boschloo's exact test where all are 0 or 1, else by permutation. With fewer than 2 seeds
    nothing is shown. ValueError if a figure is not finite, or a group has none.
    """
    if not all(of and all(map(math.isfinite, of.values())) for of in figures.values()):
        raise ValueError("the best set needs finite figures of every group")
    sign = 1 if lower else -1
    losses = {name: {seed: sign * figure for seed, figure in of.items()} for name, of in figures.items()}
    p_values = dict.fromkeys(figures, 1.0)
    for a, b in combinations(figures, 2):
        test = _unpaired if proportion else _paired
        for worse, p in zip((a, b), test(losses[a], losses[b]), strict=True):
            p_values[worse] = min(p_values[worse], p * (len(figures) - 1))
    means = {name: float(np.mean([*of.values()])) for name, of in losses.items()}
    members = tuple(sorted((name for name, p in p_values.items() if p >= 1 - confidence), key=lambda name: means[name]))
    return BestSet(members, p_values, confidence)


def _paired(first: Figures, second: Figures) -> tuple[float, float]:
    """Return one-sided p-values that the first, and that the second, has the higher mean."""
    gaps = np.array([first[seed] - second[seed] for seed in first.keys() & second.keys()])
    n = len(gaps)
    if n < 2:
        return 1.0, 1.0
    mean, rounding = float(gaps.mean()), 1e-12 * max(1.0, max(map(abs, (*first.values(), *second.values()))))
    if np.ptp(gaps) <= rounding:  # no spread, no t test; of all signs, one choice in 2**n is as extreme
        return (0.5**n if mean > rounding else 1.0), (0.5**n if mean < -rounding else 1.0)
    t = mean / float(gaps.std(ddof=1)) * math.sqrt(n)
    return float(special.stdtr(n - 1, -t)), float(special.stdtr(n - 1, t))


def _unpaired(first: Figures, second: Figures) -> tuple[float, float]:
    """Return one-sided p-values that the first, and that the second, has the higher mean: half the two-sided one."""
    a, b = (np.array([*of.values()], dtype=float) for of in (first, second))
    if np.isin([*a, *b], (-1, 0, 1)).all():
        p = proportions_differ(int(abs(a.sum())), len(a), int(abs(b.sum())), len(b))
    else:
        p = stats.permutation_test(
            (a, b),
            lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
            n_resamples=10_000,
            vectorized=True,
            rng=np.random.default_rng(0),
        ).pvalue
    gap = a.mean() - b.mean()
    return float(p) / 2 if gap > 0 else 1.0, float(p) / 2 if gap < 0 else 1.0


def rank_intervals(groups: Collection[str], better: Collection[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest rank of each group, 1 for the best, that the shown differences leave.

    better: pairs (a, b) of which a is shown to be better than b. Where these are one family of all pairs, all intervals
    hold together with its confidence (Al Mohamad, Goeman & van Zwet 2022, "Simultaneous confidence intervals for
    ranks", Biometrics 78).
    """
    shown = set(better)
    above = {group: sum(b == group for _, b in shown) for group in groups}
    below = {group: sum(a == group for a, _ in shown) for group in groups}
    return {group: (1 + above[group], len(groups) - below[group]) for group in groups}
