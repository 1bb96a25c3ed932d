"""Missing and diverged seeds in words, and comparisons that they leave in doubt.

Comparing the runs that are there compares survivors. So

- while a planned seed of either group is missing, nothing is claimed: whatever the remaining runs show, the missing
  ones might show the opposite, and the t test, whose spread is then unknown, has no worst case short of that;
- a diverged seed is the worst result there is. With one among them, two groups are compared by Wilcoxon's signed-rank
  test, in which it has the last rank, and nothing is claimed for a group with diverged seeds unless the t test over the
  others agrees;
- planned groups count in Holm's family, whether they have runs or not.

So no claim can come of a run that is damaged or gone. Seeds are planned by the sweep (`poslab.runs.plan`); without a
plan, those count that any group of the comparison has. The numbers are in `poslab.statistics.outcomes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from poslab.runs.plan import Planned
from poslab.statistics.outcomes import SeedOutcomes
from poslab.statistics.paired import Difference

Key = TypeVar("Key")


def incomplete_sentence(outcomes: SeedOutcomes, first: str, second: str, claim: str, others: str) -> str:
    """Return a sentence for two groups that are not complete.

    claim: "better" or "worse", if that can be shown. others: how they differ in the seeds that neither lacks, if there
    are such.
    """
    counts = zip((first, second), outcomes.diverged, strict=True)
    failed = [f"of {name}, {count} of {outcomes.planned} seeds diverged" for name, count in counts if count]
    failed += [outcomes.unsettled] if outcomes.unsettled else []
    if outcomes.missing:
        failed.insert(0, missing_seeds(outcomes.missing, f"{outcomes.planned} seeds"))
    said = f"{first} is {claim} than {second}" if claim else f"no difference between {first} and {second} can be shown"
    rest = f"{'so far' if outcomes.missing or outcomes.unsettled else 'in the others'} {others}"
    return "; ".join([f"{said}: {', '.join(failed)}", *([rest] if others else [])])


def missing_seeds(missing: Sequence[int], of_all: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {of_all} {are} missing ({', '.join(map(str, missing))})"


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
