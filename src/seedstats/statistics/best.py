"""Set of the best: the names that are not shown to be worse than another one.

It is to hold every truly best name of a page, all of several that tie, in at least `confidence` of all pages. Where a
page compares all pairs, its claims alone decide: all of them are true in so many pages (Holm 1979). Where it compares
each name with a baseline, the set is found in two steps:

1. What the claims show to be worse, of the baseline or of another name, is left out: no claim contradicts the set.
2. If the baseline itself is left out, the others are compared with each other. A name's p-value is its smallest
   one-sided p against another name, times the number of those; Holm's method over the names, at half of the error rate.

Proof. If the baseline is truly among the best, step 1 leaves out a best name only by a false claim, and step 2 begins
only after one: at most 5 % of pages. If it is not, step 1 leaves out a best name only by a claim in the wrong
direction, one of two tails and at most 2.5 %, and step 2 does so in at most 2.5 %: Holm's method holds for the
hypotheses "this name is among the best" whatever their dependence (a closed test: Marcus, Peritz & Gabriel 1976,
Biometrika 63).

Multiple comparisons with the best (Hsu 1981, Annals of Statistics 9) has more power, but needs one variance for all
names, and holds one of several best ones, not all.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from seedstats.statistics.families import holm
from seedstats.statistics.paired import Difference, Figures, paired

Ordered = tuple[str, str]  # the better name, the worse one
_LEADERS = 10  # names with the best means, against which all are tested; fewer tests than are corrected for


@dataclass(frozen=True)
class BestSet:
    """Names that may be the best, the best mean first, and those that are not."""

    members: tuple[str, ...]
    left_out: tuple[str, ...]


def best_set(
    figures: Mapping[str, Figures],
    claims: Collection[Ordered] = (),
    baseline: str | None = None,
    *,
    lower: bool = True,
    proportion: bool = False,
    confidence: float = 0.95,
) -> BestSet:
    """Return the names that are not shown to be worse than another one.

    figures: finite ones by name and seed. claims: what the page shows (`shown`). baseline: with which it compares all
    others, if it has no place among `figures` because runs diverged as well; None: all pairs were compared. lower:
    whether lower figures are better.
    """
    sign = 1 if lower else -1
    ranked = sorted(figures, key=lambda name: sign * fmean(figures[name].values()))
    left_out = {worse for better, worse in claims if better in figures}
    if baseline is not None and (baseline in left_out or baseline not in figures):
        others = {name: figures[name] for name in ranked if name != baseline}
        p_values = holm(_worse_than_another(others, sign, proportion))
        left_out |= {name for name, p in p_values.items() if p < (1 - confidence) / 2}
    members = tuple(name for name in ranked if name not in left_out) or tuple(ranked[:1])
    return BestSet(members, tuple(name for name in ranked if name not in members))


def _worse_than_another(ranked: Mapping[str, Figures], sign: int, proportion: bool) -> dict[str, float]:
    """Return by name the one-sided p-value of "it is worse than another one", corrected for the number of others."""
    leaders = list(ranked)[:_LEADERS]
    pairs = {(name, leader): (ranked[name], ranked[leader]) for name in ranked for leader in leaders if name != leader}
    p_values = dict.fromkeys(ranked, 1.0)
    for (name, _), difference in paired(pairs, proportion=proportion).items():
        if difference.p_value is not None and sign * (difference.mean or 0.0) > 0:
            p_values[name] = min(p_values[name], (len(ranked) - 1) * difference.p_value / 2)
    return p_values


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
