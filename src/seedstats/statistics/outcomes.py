"""Missing and diverged seeds: what is known of two groups over the seeds that were planned for both."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from seedstats.statistics.permutation import signed_ranks


@dataclass(frozen=True)
class SeedOutcomes:
    """Results of two groups over their planned seeds.

    differences: first - second for each seed that is there, infinite where one diverged, 0 where both did. diverged:
    how many seeds of the first and of the second did. unsettled: why the comparison itself is in doubt, if so.
    """

    planned: int = 0
    missing: tuple[int, ...] = ()
    diverged: tuple[int, int] = (0, 0)
    differences: tuple[float, ...] = ()
    unsettled: str = ""

    @property
    def sound(self) -> bool:
        """Return whether all seeds that are there can be compared, and nothing else puts the comparison in doubt."""
        return not (any(self.diverged) or self.unsettled)

    @property
    def leaning(self) -> float:
        """Return the sum of signed ranks: above 0 if the first group has the higher figures."""
        return float(sum(signed_ranks(self.differences)))

    @property
    def favours_diverged(self) -> bool:
        """Return whether the group that looks better has diverged seeds."""
        return any(math.isinf(d) and d * self.leaning < 0 for d in self.differences)

    @property
    def reversed(self) -> "SeedOutcomes":
        first, second = self.diverged
        return replace(self, diverged=(second, first), differences=tuple(-d for d in self.differences))


def outcomes_of(first: Mapping[int, float], second: Mapping[int, float], planned: Collection[int]) -> SeedOutcomes:
    """Return the results of two groups.

    first, second: figures by seed, infinite for diverged seeds. planned: the seeds planned for both; those that both
    have count as well.
    """
    common = sorted(first.keys() & second.keys())
    missing = tuple(sorted({*planned} - {*common}))
    first_worst, second_worst = (sum(math.isinf(of[seed]) for seed in common) for of in (first, second))
    both = ((first[seed], second[seed]) for seed in common)
    differences = tuple(0.0 if math.isinf(a) and math.isinf(b) else a - b for a, b in both)
    return SeedOutcomes(len(common) + len(missing), missing, (first_worst, second_worst), differences)
