"""Missing and diverged seeds: how they enter the comparison of two groups.

Comparing the runs that are there compares survivors. So

- while a planned seed of either group is missing, nothing is claimed: whatever the remaining runs show, the missing
  ones might show the opposite, and the t test, whose spread is then unknown, has no worst case short of that;
- a diverged seed is the worst result there is. With one among them, two groups are compared by Wilcoxon's signed-rank
  test, in which it has the last rank, and nothing is claimed for a group with diverged seeds unless the t test over the
  others agrees;
- planned groups count in Holm's family, whether they have runs or not.

So no claim can come of a run that is damaged or gone. Seeds are planned by the sweep (`poslab.runs.plan`); without a
plan, those count that any group of the comparison has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from poslab.comparison.statistics import Difference
    from poslab.runs.plan import Planned

Key = TypeVar("Key")


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
    def complete(self) -> bool:
        return not (self.missing or any(self.diverged) or self.unsettled)

    @property
    def leaning(self) -> float:
        """Return the sum of signed ranks: above 0 if the first group has the higher figures."""
        return float(sum(signed_ranks(self.differences)))

    @property
    def favours_diverged(self) -> bool:
        """Return whether the group that looks better has diverged seeds."""
        return any(math.isinf(d) and d * self.leaning < 0 for d in self.differences)

    def sentence(self, first: str, second: str, claim: str, others: str) -> str:
        """Return a sentence for two groups that are not complete.

        claim: "better" or "worse", if that can be shown. others: how they differ in the seeds that neither lacks, if
        there are such.
        """
        counts = zip((first, second), self.diverged, strict=True)
        failed = [f"of {name}, {count} of {self.planned} seeds diverged" for name, count in counts if count]
        failed += [self.unsettled] if self.unsettled else []
        if self.missing:
            failed.insert(0, missing_seeds(self.missing, f"{self.planned} seeds"))
        said = (
            f"{first} is {claim} than {second}" if claim else f"no difference between {first} and {second} can be shown"
        )
        rest = f"{'so far' if self.missing or self.unsettled else 'in the others'} {others}"
        return "; ".join([f"{said}: {', '.join(failed)}", *([rest] if others else [])])

    @property
    def reversed(self) -> SeedOutcomes:
        return replace(
            self, diverged=(self.diverged[1], self.diverged[0]), differences=tuple(-d for d in self.differences)
        )


def outcomes_of(first: Mapping[int, float], second: Mapping[int, float], planned: Collection[int]) -> SeedOutcomes:
    """Return the results of two groups.

    first, second: figures by seed, infinite for diverged seeds. planned: the seeds planned for both; those that both
    have count as well.
    """
    common = sorted(first.keys() & second.keys())
    missing = tuple(sorted({*planned} - {*common}))
    of_first, of_second = (sum(math.isinf(of[seed]) for seed in common) for of in (first, second))
    found = (
        0.0 if math.isinf(first[seed]) and math.isinf(second[seed]) else first[seed] - second[seed] for seed in common
    )
    return SeedOutcomes(len(common) + len(missing), missing, (of_first, of_second), tuple(found))


def missing_seeds(missing: Sequence[int], of_all: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {of_all} {are} missing ({', '.join(map(str, missing))})"


def signed_ranks(differences: Sequence[float]) -> list[float]:
    """Return ranks of sizes, with the signs of the differences; infinite sizes share the last ones."""
    array = np.asarray(differences, dtype=float)
    return list(map(float, np.sign(array) * stats.rankdata(np.abs(array))))


def unsettled(by_label: Mapping[str, Difference], planned: Planned, baseline: str, first: str) -> dict[str, Difference]:
    """Return the differences from a default baseline, without claims if a lost group might have been the baseline.

    first: the scheme that is the default baseline if it has runs.
    """
    might = [group.name for group in planned.lost if first == group.name.split()[0] or first != baseline.split()[0]]
    if not might:
        return dict(by_label)
    why = f"the baseline would be {might[0]}" if len(might) == 1 else f"the baseline might be {' or '.join(might)}"
    return _without_claims(by_label, f"{why}, which has no finished run")


def without_lost(found: Mapping[Key, Difference], planned: Planned) -> dict[Key, Difference]:
    """Return means over groups, without claims where some of the planned groups are missing."""
    if not planned.lost:
        return dict(found)
    return _without_claims(found, f"there is no finished run of {planned.lost_names}")


def _without_claims(found: Mapping[Key, Difference], why: str) -> dict[Key, Difference]:
    return {key: replace(d, p_value=None, outcomes=replace(d.outcomes, unsettled=why)) for key, d in found.items()}
