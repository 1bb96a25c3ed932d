"""Families of comparisons: the more are made, the more differ by chance.

All comparisons of a page are one family, whatever sections it has. Their p-values are corrected by Holm's method (Holm
1979): the chance of any false claim on the page is at most 1 - CONFIDENCE. Their intervals are corrected by
Bonferroni's (`Difference.corrected`): the chance that any of them misses is at most 1 - CONFIDENCE, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from seedstats.statistics.paired import FEWEST_SEEDS, Difference

Key = TypeVar("Key")


def holm(p_values: Mapping[Key, float], family: int = 0) -> dict[Key, float]:
    """Return p-values corrected by Holm's method. family: the planned number of tests; those not run have p = 1."""
    corrected: dict[Key, float] = {}
    largest, family = 0.0, max(family, len(p_values))
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (family - rank) * p_values[name]))
        corrected[name] = largest
    return corrected


def one_family(
    sections: Sequence[Mapping[Key, Difference]], planned: Sequence[int] | None = None, looks: int = 1
) -> list[dict[Key, Difference]]:
    """Return the differences of several sections, which were compared each by itself (`paired`), as one family.

    planned: how many comparisons were planned in each section; at least so many count. looks: how often the figures
    are looked at, with seeds added in between; each look counts as if it were further comparisons (Bonferroni).
    """
    counts = [sum(map(_counts, section.values())) for section in sections]
    size = looks * max(1, sum(map(max, counts, planned or counts)))
    # Whoever diverged counts, but takes nothing from the family: no claim on others may come of it.
    usual = {
        (number, key): 1.0 if d.p_value is None or any(d.outcomes.diverged) else d.p_value
        for number, section in enumerate(sections)
        for key, d in section.items()
        if _counts(d)
    }
    by_holm = holm(usual, size)

    def corrected(d: Difference, place: tuple[int, Key]) -> Difference:
        if d.p_value is None:
            return d.corrected(None, size)
        diverged = any(d.outcomes.diverged)
        return d.corrected(min(1.0, size * d.p_value) if diverged else by_holm[place], size)

    return [{key: corrected(d, (number, key)) for key, d in section.items()} for number, section in enumerate(sections)]


def _counts(d: Difference) -> bool:
    """Return whether a comparison is one of its family: enough seeds were planned for it."""
    return d.p_value is not None or d.outcomes.planned >= FEWEST_SEEDS


def without_claims(differences: Mapping[Key, Difference], why: str) -> dict[Key, Difference]:
    """Return differences that claim nothing, as the comparisons themselves are in doubt, for the reason `why`."""
    return {
        key: replace(d, p_value=None, outcomes=replace(d.outcomes, unsettled=why)) for key, d in differences.items()
    }
