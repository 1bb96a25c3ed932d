"""Best set: the groups that are not shown to be worse than any other.

One group is truly the best (of several that tie, each is). It is wrongly left out where one of the k - 1 others seems
better, so each group is compared with every other one at (1 - confidence) / (k - 1), with the tests of claims
(`statistics.paired`). Claims of the page are corrected step by step, so one may show what these comparisons don't: the
worse group is left out then, too, and no claim contradicts the set. Both are two-sided tests, of which only the tail
where the best group seems worse leaves it out: 2.5 % each, so the set holds the best group in at least `confidence` of
all sweeps. The idea is that of Hsu (1984), "Constrained simultaneous confidence intervals for multiple comparisons with
the best", Annals of Statistics 12, with other tests, chosen by simulation: Hsu's common variance of all groups loses
the best one in 23 % of sweeps where one of 18 groups is five times as noisy as the others; the model confidence set of
Hansen, Lunde & Nason (2011) loses it in 15 % with 3 seeds, as its bootstrap needs many.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from seedstats.statistics.paired import Difference, Figures, paired

Ordered = tuple[str, str]  # the better group, the worse one


@dataclass(frozen=True)
class BestSet:
    """Groups not shown to be worse than any other, the best mean first.

    p_values: of each group, that of "this group is the best", corrected for the comparisons with all others, without
    the claims of the page.
    """

    members: tuple[str, ...]
    p_values: Mapping[str, float]
    confidence: float


def best_set(
    figures: Mapping[str, Figures],
    claims: Collection[Ordered] = (),
    *,
    lower: bool = True,
    proportion: bool = False,
    confidence: float = 0.95,
) -> BestSet:
    """Return the groups that are not shown to be worse than any other group.

    figures: finite ones by group and seed; a group whose runs diverged is left out by the caller. claims: what the page
    shows (`shown`). lower: whether lower figures are better. Pairs with too few common seeds show nothing.
    """
    sign = 1 if lower else -1
    pairs = {pair: (figures[pair[0]], figures[pair[1]]) for pair in combinations(figures, 2)}
    p_values = dict.fromkeys(figures, 1.0)
    for (first, second), d in paired(pairs, proportion=proportion).items():
        if d.p_value is not None and d.mean:
            worse = first if d.mean * sign > 0 else second
            p_values[worse] = min(p_values[worse], d.p_value * (len(figures) - 1))
    left_out = {worse for better, worse in claims if better in figures}
    left_out |= {name for name, p in p_values.items() if p < 1 - confidence}
    kept = [name for name in figures if name not in left_out]
    members = sorted(kept, key=lambda name: sign * fmean(figures[name].values()))
    return BestSet(tuple(members), p_values, confidence)


def shown(tested: Mapping[Ordered, Difference], *, lower: bool = True) -> list[Ordered]:
    """Return the tested pairs that are shown to differ. tested: first minus second."""
    return [pair if (d.leaning < 0) == lower else pair[::-1] for pair, d in tested.items() if d.significant]


def rank_intervals(groups: Collection[str], better: Collection[Ordered]) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest rank of each group, 1 for the best, that the shown differences leave.

    better: pairs (a, b) of which a is shown to be better than b. Where these are one family of all pairs, all intervals
    hold together with its confidence (Al Mohamad, Goeman & van Zwet 2022, "Simultaneous confidence intervals for
    ranks", Biometrics 78).
    """
    above, below = (Counter(pair[place] for pair in set(better)) for place in (1, 0))
    return {group: (1 + above[group], len(groups) - below[group]) for group in groups}
