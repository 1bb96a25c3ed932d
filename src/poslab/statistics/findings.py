"""Findings on two groups, with their numbers, and the words for them; `remarks` has those of all groups together.

A finding claims no more than its corrected p-value or interval allows. Each is one sentence without its full stop; a
claimed difference says "is better than" or "is worse than".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from poslab.statistics.counts import TwoCounts
from poslab.statistics.intervals import CONFIDENCE
from poslab.statistics.paired import FEWEST_SEEDS, Difference
from poslab.statistics.permutation import seeds_to_claim
from poslab.statistics.power import MOST_SEEDS, plan_seeds

SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions
BETTER, WORSE = "better", "worse"


class Measure(Protocol):
    """Kind of figures, as `Metric` is: unit, "nats per token" or "of the examples"; sign: 1 where lower is better."""

    @property
    def unit(self) -> str: ...
    @property
    def is_proportion(self) -> bool: ...
    @property
    def sign(self) -> int: ...


@dataclass(frozen=True)
class Finding:
    """Finding on `first` and `second`, whose difference is first minus second. effect: a difference that matters, if
    one is known. remarks: what weakens or extends the finding."""

    first: str
    second: str
    difference: Difference
    measure: Measure
    effect: float | None
    remarks: Sequence[str]

    def __str__(self) -> str:
        return "; ".join([self.claim, *self.remarks])

    @property
    def claim(self) -> str:
        raise NotImplementedError

    @property
    def word(self) -> str:
        """Return "better" or "worse", as the first group is."""
        return BETTER if self.difference.leaning * self.measure.sign < 0 else WORSE

    @property
    def size(self) -> float:
        return abs(self.difference.mean or 0.0)

    @property
    def amount(self) -> str:
        """Return the size with its unit, "0.080 nats"."""
        return f"{self.size:.{decimals(self.measure, self.size)}f}{unit_after(self.measure)}"

    @property
    def numbers(self) -> str:
        """Return the difference with its interval, "-0.010 nats [-0.030, 0.010]", or without if it has none."""
        d = self.difference
        mean, unit = d.mean or 0.0, unit_after(self.measure)
        if d.interval is None:
            return f"{mean:+.{decimals(self.measure, mean)}f}{unit}"
        low, high = d.interval
        places = decimals(self.measure, low, high) if low <= 0 <= high else decimals(self.measure, low, mean, high)
        all_at_once = f" for {d.comparisons} comparisons at once" if d.comparisons > 1 else ""
        return f"{mean:z.{places}f}{unit} [{low:z.{places}f}, {high:z.{places}f}]{all_at_once}"


class Shown(Finding):
    """Difference that is claimed, with the ends of its simultaneous interval as sizes in the same direction."""

    @property
    def claim(self) -> str:
        d, said = self.difference, f"{self.first} is {self.word} than {self.second} by"
        if d.interval is None:
            return f"{said} {self.amount} in each of {d.n} seeds"
        low, high = sorted(map(abs, d.interval))
        places = decimals(self.measure, low, self.size, high)
        least = f"at least {low:.{places}f}" if low else "more than 0"
        size = f"{self.size:.{places}f}{unit_after(self.measure)}"
        return f"{said} {size}, {least} and at most {high:.{places}f}, n = {d.n}"


class Equal(Finding):
    """Difference shown to be smaller than `effect`, by two one-sided tests."""

    @property
    def claim(self) -> str:
        said = f"{self.first} and {self.second} are equal within {self.effect:g}{unit_after(self.measure)}"
        return f"{said} ({self.numbers}, n = {self.difference.n})"


class NotShown(Finding):
    """Difference that is not claimed, and how many seeds would show one of `effect`."""

    @property
    def claim(self) -> str:
        d = self.difference
        said = f"no difference between {self.first} and {self.second} can be shown with n = {d.n} ({self.numbers})"
        if d.interval is not None and (d.interval.low > 0 or d.interval.high < 0):
            p = p_text(d.p_value or 0)
            said += f"; the interval excludes 0, but p = {p} by the exact test and Holm's correction"
        return f"{said}; {self.outlook}"

    @property
    def outlook(self) -> str:
        """Return what would show a difference of `effect`, or what the comparison implies about one."""
        d, effect = self.difference, self.effect
        if effect is None:
            return "with effect=NUMBER, a difference that matters, this says how many seeds would show it"
        plan = plan_seeds(d.sd or 0.0, d.n, effect, alpha=(1 - CONFIDENCE) / d.comparisons)
        fewest = seeds_that_agree(d) if self.measure.is_proportion else 0
        needed, low, high = (max(fewest, number) for number in (plan.assured, plan.low, plan.high))
        if needed >= MOST_SEEDS:
            return f"{MOST_SEEDS:,} seeds or more would be needed to see {effect:g}"
        if needed > d.n:
            spread = f"{low:,} to {high:,}" if high < MOST_SEEDS else f"{low:,} or more"
            return f"to show one of {effect:g}, plan with {needed:,} seeds ({spread}, by what {d.n} tell of the spread)"
        if d.interval and -effect < d.interval.low and d.interval.high < effect:
            return f"a difference of {effect:g} would probably have been seen"
        # The power was high before the experiment, but the interval that came out is wide.
        return f"{d.n} seeds usually show a difference of {effect:g}, yet the interval does not exclude it"


class AllAlike(Finding):
    """Difference that is the same in all seeds, too few to claim it, or none at all."""

    @property
    def claim(self) -> str:
        d = self.difference
        if not self.size:
            return f"{self.first} and {self.second} were equal in each of {d.n} seeds"
        few = f"too few to claim it (p = {p_text(d.p_value or 0)}); {seeds_that_agree(d)} such seeds would do"
        return f"{self.first} was {self.word} than {self.second} by {self.amount} in each of {d.n} seeds, {few}"


class TooFew(Finding):
    """Description of a difference over fewer seeds than a claim takes."""

    @property
    def claim(self) -> str:
        n = self.difference.n
        if self.difference.mean is None:
            return f"{self.first} and {self.second} have no seed in common"
        was = f"was {self.word} than {self.second} by {self.amount}" if self.size else f"and {self.second} were equal"
        if n == 1:
            return f"{self.first} {was} in one run each; one run says nothing about chance"
        return f"{self.first} {was} in the mean of {n} seeds; to claim a difference takes {FEWEST_SEEDS} or more"


class Incomplete(Finding):
    """Comparison of two groups with diverged or missing seeds, which may be claimed all the same."""

    @property
    def claim(self) -> str:
        d, outcomes = self.difference, self.difference.outcomes
        counts = zip((self.first, self.second), outcomes.diverged, strict=True)
        why = [missing_seeds(outcomes.missing, f"{outcomes.planned} seeds")] if outcomes.missing else []
        why += [f"of {name}, {count} of {outcomes.planned} seeds diverged" for name, count in counts if count]
        why += [outcomes.unsettled] if outcomes.unsettled else []
        said = f"no difference between {self.first} and {self.second} can be shown"
        if d.significant:
            said = f"{self.first} is {self.word} than {self.second}"
        when = "so far" if outcomes.missing or outcomes.unsettled else "in the others"
        others = [f"{when} {self.numbers}, n = {d.n}"] if d.mean is not None else []
        return "; ".join([f"{said}: {', '.join(why)}", *others])


def finding(
    first: str,
    second: str,
    difference: Difference,
    measure: Measure,
    effect: float | None = None,
    remarks: Sequence[str] = (),
) -> Finding:
    """Return the finding on two groups. effect: a difference that matters, by default `usual_effect`."""
    margin = effect if effect or measure.is_proportion else usual_effect(measure)  # a tenth is no small difference
    d, given = difference, (first, second, difference, measure, effect or usual_effect(measure))
    alike = d.interval is None or d.sd == 0
    if not d.outcomes.complete and (d.mean is not None or any(d.outcomes.diverged) or d.outcomes.unsettled):
        return Incomplete(*given, remarks)
    if d.mean is None or d.n < FEWEST_SEEDS:
        return TooFew(*given, remarks)
    if d.mean and alike and unit(measure) == "nats":
        remarks = ["losses that were trained never differ so evenly", *remarks]
    if d.significant:
        return Shown(*given, remarks)
    if alike:
        return AllAlike(*given, remarks)
    if margin is not None and d.equal_within(margin):
        return Equal(*given, remarks)
    return NotShown(*given, remarks)


def usual_effect(measure: Measure) -> float | None:
    """Return a difference that matters: 0.02 nats, or a tenth of all examples; None for other units."""
    return 0.1 if measure.is_proportion else 0.02 if unit(measure) == "nats" else None


def seeds_that_agree(d: Difference) -> int:
    """Return how many seeds would show the difference if they all agree."""
    if isinstance(d.method, TwoCounts):
        return next(n for n in range(1, MOST_SEEDS) if d.comparisons * TwoCounts(n, 0, n).p_value < 1 - CONFIDENCE)
    if d.method:  # labels exchanged among 2 n seeds, and its p-value doubled (`share_test`)
        return next(n for n in range(1, MOST_SEEDS) if 4 * d.comparisons / math.comb(2 * n, n) < 1 - CONFIDENCE)
    return seeds_to_claim(d.comparisons)


# Numbers


def missing_seeds(missing: Sequence[int], of_all: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {of_all} {are} missing ({', '.join(map(str, missing))})"


def p_text(p: float) -> str:
    """Return a p-value as tables and sentences print it: never 0."""
    return f"{SMALLEST_P:.0e} or less" if p <= SMALLEST_P else f"{p:.2g}"


def unit(measure: Measure) -> str:
    """Return the unit within a sentence: "nats" for "nats per token"."""
    return measure.unit.partition(" per ")[0]


def unit_after(measure: Measure) -> str:
    """Return the unit as it stands after a number, with a space before it if there is one."""
    return f" {unit(measure)}".rstrip()


def decimals(measure: Measure, *numbers: float) -> int:
    """Return 3 decimals, for proportions 2, so that sentences in a list compare; more as `places_for` says."""
    return places_for(2 if measure.is_proportion else 3, *numbers)


def places_for(fewest: int, *numbers: float) -> int:
    """Return a number of decimals: `fewest`, or more if numbers would look equal, or 0."""
    told_apart = {0.0, *numbers}
    return next((d for d in range(fewest, 12) if len({round(x, d) for x in told_apart}) == len(told_apart)), 12)
