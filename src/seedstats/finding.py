"""Findings on two groups, with their numbers, and the words for them; `answers` has those of all groups.

A finding says what is shown, the number with its interval, whether that is more than what matters, and one condition.
It claims no more than its corrected p-value or interval allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seedstats.metric import Metric
from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.intervals import CONFIDENCE
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.permutation import seeds_to_claim
from seedstats.statistics.power import MOST_SEEDS, plan_seeds

SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions
BETTER, WORSE = "better", "worse"


@dataclass(frozen=True)
class Finding:
    """Finding on `first` and `second`, whose difference is first minus second. effect: a difference that matters, if
    one is known. condition: what weakens or extends the finding, a sentence."""

    first: str
    second: str
    difference: Difference
    metric: Metric
    effect: float | None
    condition: str = ""

    def __str__(self) -> str:
        return " ".join([f"{self.claim}.", *(f"{capital(text)}." for text in (self.matter, self.condition) if text)])

    @property
    def claim(self) -> str:
        raise NotImplementedError

    @property
    def matter(self) -> str:
        """Return what the finding says of a difference that matters, a sentence."""
        return ""

    @property
    def word(self) -> str:
        """Return "better" or "worse", as the first group is."""
        return BETTER if self.difference.leaning * self.metric.sign < 0 else WORSE

    @property
    def size(self) -> float:
        return abs(self.difference.mean or 0.0)

    @property
    def seeds(self) -> str:
        return counted(self.difference.n)

    @property
    def numbers(self) -> str:
        """Return the difference with its interval, "-0.010 nats [-0.030, 0.010]", or without if it has none."""
        d, unit = self.difference, f" {self.metric.short_unit}".rstrip()
        mean = d.mean or 0.0
        if d.interval is None:
            return f"{mean:+.{self.metric.places(mean)}f}{unit}"
        low, high = d.interval
        places = self.metric.places(low, high) if low <= 0 <= high else self.metric.places(low, mean, high)
        return f"{mean:z.{places}f}{unit} [{low:z.{places}f}, {high:z.{places}f}]"


class Shown(Finding):
    """Difference that is claimed, with the ends of its simultaneous interval as sizes in the same direction."""

    @property
    def claim(self) -> str:
        return f"{self.first} is {self.word} than {self.second}: {self.amount}"

    @property
    def amount(self) -> str:
        """Return the size with its interval and the number of seeds, "0.093 nats [0.030, 0.156], 5 seeds"."""
        if self.difference.interval is None:
            return f"{self.metric.amount(self.size)} in each of {self.seeds}"
        low, high = self.sizes
        places = self.metric.places(low, self.size, high)
        return f"{self.metric.amount(self.size, low, high)} [{low:.{places}f}, {high:.{places}f}], {self.seeds}"

    @property
    def compared(self) -> str:
        """Return the claim as it stands in a headline, "better than B by 0.093 nats [0.030, 0.156], 5 seeds"."""
        return f"{self.word} than {self.second} by {self.amount}"

    @property
    def sizes(self) -> tuple[float, float]:
        """Return the ends of the interval as sizes, the smaller one first."""
        low, high = sorted(map(abs, self.difference.interval or (self.size, self.size)))
        return low, high

    @property
    def is_small(self) -> bool:
        """Return whether the difference is shown to be smaller than one that matters."""
        return self.effect is not None and self.sizes[1] < self.effect

    @property
    def matter(self) -> str:
        if self.effect is None:
            return ""
        matters = f"the {self.effect:g}{f' {self.metric.short_unit}'.rstrip()} that matters"
        if self.is_small:
            return f"a real difference, but smaller than {matters}"
        return f"this is more than {matters}" if self.sizes[0] >= self.effect else f"it may be less than {matters}"


class Equal(Finding):
    """Difference shown to be smaller than `effect`, by two one-sided tests."""

    @property
    def claim(self) -> str:
        within = f"{self.effect:g} {self.metric.short_unit}".rstrip()
        return f"{self.first} and {self.second} are equal within {within}: {self.numbers}, {self.seeds}"

    @property
    def matter(self) -> str:
        wide = self.effect is not None and max(map(abs, self.difference.interval or (0.0,))) >= self.effect
        return "two one-sided tests show it, although this interval is wider" if wide else ""


class NotShown(Finding):
    """Difference that is not claimed, and how many seeds would show one of `effect`."""

    @property
    def claim(self) -> str:
        d = self.difference
        said = f"No difference between {self.first} and {self.second} is shown: {self.numbers}, {self.seeds}"
        if d.interval is not None and (d.interval.low > 0 or d.interval.high < 0):
            said += f"; the interval excludes 0, but the exact test gives p = {p_text(d.p_value or 0)}"
        return said

    @property
    def matter(self) -> str:
        """Return what would show a difference of `effect`, or what the comparison implies about one."""
        d, effect = self.difference, self.effect
        if effect is None:
            return ""
        plan = plan_seeds(d.tested_sd or 0.0, d.n, effect, alpha=(1 - CONFIDENCE) / d.comparisons)
        fewest = seeds_that_agree(d) if self.metric.is_proportion else 0
        needed, low, high = (max(fewest, number) for number in (plan.assured, plan.low, plan.high))
        if needed >= MOST_SEEDS:
            return f"to show a difference of {effect:g} would take {MOST_SEEDS:,} seeds or more"
        if needed > d.n:
            spread = f"{low:,} to {high:,}" if high < MOST_SEEDS else f"{low:,} or more"
            return f"to show a difference of {effect:g}, plan with {needed:,} seeds (95 % limits {spread})"
        if d.interval and -effect < d.interval.low and d.interval.high < effect:
            return f"a difference of {effect:g} would probably have been seen"
        # The power was high before the experiment, but the interval that came out is wide.
        return f"{d.n} seeds usually show a difference of {effect:g}, but this interval does not exclude it"


class AllAlike(Finding):
    """Difference that is the same in all seeds, too few to claim it, or none at all."""

    @property
    def claim(self) -> str:
        d = self.difference
        if not self.size:
            return f"{self.first} and {self.second} were equal in each of {self.seeds}"
        size, p = self.metric.amount(self.size), p_text(d.p_value or 0)
        was = f"{self.first} was {self.word} than {self.second}: {size} in each of {self.seeds}"
        return f"{was}, too few to claim it (p = {p}); {seeds_that_agree(d)} such seeds would do"


class TooFew(Finding):
    """Description of a difference over fewer seeds than a claim takes."""

    @property
    def claim(self) -> str:
        n = self.difference.n
        if self.difference.mean is None:
            return f"{self.first} and {self.second} have no seed in common"
        amount = self.metric.amount(self.size)
        was = f"was {self.word} than {self.second}: {amount}" if self.size else f"and {self.second} were equal"
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
        why += [f"{count} of {outcomes.planned} seeds of {name} diverged" for name, count in counts if count]
        why += [outcomes.unsettled] if outcomes.unsettled else []
        said = f"No difference between {self.first} and {self.second} is shown"
        if d.significant:
            said = f"{self.first} is {self.word} than {self.second}"
        when = "so far" if outcomes.missing or outcomes.unsettled else "in the others"
        others = f"; {when} {self.numbers}, {self.seeds}" if d.mean is not None else ""
        return f"{said}: {', '.join(why)}{others}"


def finding(
    first: str,
    second: str,
    difference: Difference,
    metric: Metric,
    effect: float | None = None,
    condition: str = "",
) -> Finding:
    """Return the finding on two groups. effect: a difference that matters, by default `Metric.usual_effect`; of
    proportions 0.1, to plan with alone."""
    margin = effect or metric.usual_effect
    d, given = difference, (first, second, difference, metric)
    alike = d.interval is None or d.sd == 0
    if not d.outcomes.complete and (d.mean is not None or any(d.outcomes.diverged) or d.outcomes.unsettled):
        return Incomplete(*given, margin, condition)
    if d.mean is None or d.n < FEWEST_SEEDS:
        return TooFew(*given, margin, condition)
    if d.mean and alike and metric.short_unit == "nats":
        condition = "losses of trained models never differ so evenly"
    if d.significant:
        return Shown(*given, margin, condition)
    if alike:
        return AllAlike(*given, margin, condition)
    if margin is not None and d.equal_within(margin):
        return Equal(*given, margin, condition)
    return NotShown(*given, margin or (0.1 if metric.is_proportion else None), condition)


def seeds_that_agree(d: Difference) -> int:
    """Return how many seeds would show the difference if they all agree."""
    if isinstance(d.method, TwoCounts):
        return next(n for n in range(1, MOST_SEEDS) if d.comparisons * TwoCounts(n, 0, n).p_value < 1 - CONFIDENCE)
    if d.method:  # labels exchanged among 2 n seeds, and its p-value doubled (`share_test`)
        return next(n for n in range(1, MOST_SEEDS) if 4 * d.comparisons / math.comb(2 * n, n) < 1 - CONFIDENCE)
    return seeds_to_claim(d.comparisons)


def capital(text: str) -> str:
    """Return the text as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def ended(text: str) -> str:
    """Return the text with a period at its end."""
    return f"{text.removesuffix('.')}."


def counted(seeds: int) -> str:
    """Return a number of seeds in words, "3 seeds"."""
    return f"{seeds} seed{'s' * (seeds != 1)}"


def missing_seeds(missing: Sequence[int], of_all: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {of_all} {are} missing ({', '.join(map(str, missing))})"


def p_text(p: float) -> str:
    """Return a p-value as tables and sentences print it: never 0."""
    return f"{SMALLEST_P:.0e} or less" if p <= SMALLEST_P else f"{p:.2g}"
