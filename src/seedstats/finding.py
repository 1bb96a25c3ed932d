"""How the difference of two groups becomes a sentence; `answers` has the sentences on all groups.

`finding` asks in this order, and stops at the first answer:

    diverged   did seeds diverge, or is the comparison in doubt for another reason?
    too few    are there fewer than FEWEST_SEEDS seeds that both groups have?
    shown      is the corrected p-value below 0.05?
    alike      is the difference the same in all seeds, so that nothing is known of its spread?
    equal      is it shown to be smaller than what matters?
    not shown  none of these

A sentence says what is shown, the number with its interval, and the seeds that it comes from. Then come at most what
that means beside the difference that matters, the seeds that are missing, and one condition.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seedstats.metric import Metric
from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.intervals import CONFIDENCE
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.permutation import seeds_to_claim
from seedstats.statistics.power import MOST_SEEDS, plan_seeds

Kind = Literal["diverged", "too few", "shown", "alike", "equal", "not shown"]
SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions
BETTER, WORSE = "better", "worse"


@dataclass(frozen=True)
class Finding:
    """What is found of `first` and `second`, whose difference is first minus second.

    effect: a difference that matters, if one is known. text: the sentences.
    """

    kind: Kind
    first: str
    second: str
    difference: Difference
    metric: Metric
    effect: float | None
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def word(self) -> str:
        """Return "better" or "worse", as the first group is."""
        return BETTER if self.difference.leaning * self.metric.sign < 0 else WORSE

    @property
    def is_small(self) -> bool:
        """Return whether the difference is shown to be smaller than one that matters."""
        return self.kind == "shown" and self.effect is not None and sizes(self.difference)[1] < self.effect

    @property
    def compared(self) -> str:
        """Return a shown difference as a headline has it, "better than B by 0.093 nats [0.030, 0.156], 5 seeds"."""
        return f"{self.word} than {self.second} by {amount(self.difference, self.metric)}"


def finding(
    first: str,
    second: str,
    difference: Difference,
    metric: Metric,
    effect: float | None = None,
    condition: str = "",
) -> Finding:
    """Return the finding on two groups.

    difference: first minus second, with its p-value and interval corrected. effect: a difference that matters, by
    default `Metric.usual_effect`; of proportions 0.1, to plan with alone. condition: a sentence that stands last.
    """
    d, outcomes, n = difference, difference.outcomes, counted(difference.n)
    effect = effect or metric.usual_effect
    plain = Finding("not shown", first, second, d, metric, effect)
    alike = d.interval is None or d.sd == 0
    size = metric.amount(abs(d.mean or 0.0))
    matter = ""

    if not outcomes.sound and (d.mean is not None or any(outcomes.diverged) or outcomes.unsettled):
        kind: Kind = "diverged"
        claim = _with_diverged(plain)
    elif d.mean is None:
        kind = "too few"
        claim = f"{first} and {second} have no seed in common; runs that share nothing may be numbered alike"
    elif d.n < FEWEST_SEEDS:
        kind = "too few"
        was = f"was {plain.word} than {second}: {size}" if d.mean else f"and {second} were equal"
        claim = f"{first} {was} in the mean of {n}; to claim a difference takes {FEWEST_SEEDS} or more"
        if d.n == 1:
            claim = f"{first} {was} in one run each; one run says nothing about chance"
    elif d.significant:
        kind = "shown"
        claim = f"{first} is {plain.word} than {second}: {amount(d, metric)}"
        matter = _beside_what_matters(d, metric, effect)
    elif alike and d.mean:
        kind = "alike"
        p = p_text(d.p_value or 0)
        claim = (
            f"{first} was {plain.word} than {second}: {size} in each of {n}, too few to claim it (p = {p}); "
            f"{seeds_that_agree(d)} such seeds would do"
        )
    elif alike:
        kind = "alike"
        claim = f"{first} and {second} were equal in each of {n}"
    elif effect is not None and d.equal_within(effect):
        kind = "equal"
        within = f"{effect:g} {metric.short_unit}".rstrip()
        claim = f"{first} and {second} are equal within {within}: {numbers(d, metric)}, {n}"
        if max(map(abs, d.interval or (0.0,))) >= effect:
            matter = "two one-sided tests show it, although this interval is wider"
    else:
        kind = "not shown"
        claim = f"No difference between {first} and {second} is shown: {numbers(d, metric)}, {n}"
        if d.interval is not None and (d.interval.low > 0 or d.interval.high < 0):
            claim += f"; the interval excludes 0, but the exact test gives p = {p_text(d.p_value or 0)}"
        matter = _seeds_to_plan(d, metric, effect or (0.1 if metric.is_proportion else None))

    missing = ""
    if outcomes.missing and kind != "diverged":
        missing = missing_seeds(outcomes.missing, f"{outcomes.planned} planned seeds")
    if d.mean and alike and metric.short_unit == "nats" and kind in ("shown", "alike"):
        condition = "losses of trained models never differ so evenly"
    later = [f"{capital(sentence)}." for sentence in (matter, missing, condition) if sentence]
    return Finding(kind, first, second, d, metric, effect, " ".join([f"{claim}.", *later]))


def _with_diverged(finding: Finding) -> str:
    """Return the claim on groups with diverged seeds, which may be shown to differ all the same."""
    d, outcomes = finding.difference, finding.difference.outcomes
    why = [missing_seeds(outcomes.missing, f"{outcomes.planned} seeds")] if outcomes.missing else []
    for name, count in zip((finding.first, finding.second), outcomes.diverged, strict=True):
        why += [f"{count} of {outcomes.planned} seeds of {name} diverged"] if count else []
    why += [outcomes.unsettled] if outcomes.unsettled else []
    said = f"No difference between {finding.first} and {finding.second} is shown"
    if d.significant:
        said = f"{finding.first} is {finding.word} than {finding.second}"
    when = "so far" if outcomes.missing or outcomes.unsettled else "in the others"
    others = f"; {when} {numbers(d, finding.metric)}, {counted(d.n)}" if d.mean is not None else ""
    return f"{said}: {', '.join(why)}{others}"


def _beside_what_matters(d: Difference, metric: Metric, effect: float | None) -> str:
    """Return how a shown difference compares with one that matters."""
    if effect is None:
        return ""
    matters = f"the {effect:g}{f' {metric.short_unit}'.rstrip()} that matters"
    low, high = sizes(d)
    if high < effect:
        return f"a real difference, but smaller than {matters}"
    return f"this is more than {matters}" if low >= effect else f"it may be less than {matters}"


def _seeds_to_plan(d: Difference, metric: Metric, effect: float | None) -> str:
    """Return what would show a difference of `effect`, or what the comparison implies about one."""
    if effect is None:
        return ""
    plan = plan_seeds(d.tested_sd or 0.0, d.n, effect, alpha=(1 - CONFIDENCE) / d.comparisons)
    fewest = seeds_that_agree(d) if metric.is_proportion else 0
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


# Numbers


def numbers(d: Difference, metric: Metric) -> str:
    """Return the difference with its interval, "-0.010 nats [-0.030, 0.010]", or without if it has none."""
    mean, unit = d.mean or 0.0, f" {metric.short_unit}".rstrip()
    if d.interval is None:
        return f"{mean:+.{metric.places(mean)}f}{unit}"
    low, high = d.interval
    told_apart = (low, high) if low <= 0 <= high else (low, mean, high)
    places = metric.places(*told_apart, width=high - low)
    return f"{mean:z.{places}f}{unit} [{low:z.{places}f}, {high:z.{places}f}]"


def amount(d: Difference, metric: Metric) -> str:
    """Return the size with its interval and the number of seeds, "0.093 nats [0.030, 0.156], 5 seeds"."""
    size, unit = abs(d.mean or 0.0), f" {metric.short_unit}".rstrip()
    if d.interval is None:
        return f"{metric.amount(size)} in each of {counted(d.n)}"
    low, high = sizes(d)
    places = metric.places(low, size, high, width=high - low)
    return f"{size:.{places}f}{unit} [{low:.{places}f}, {high:.{places}f}], {counted(d.n)}"


def sizes(d: Difference) -> tuple[float, float]:
    """Return the ends of the interval as sizes, the smaller one first."""
    low, high = sorted(map(abs, d.interval or (d.mean or 0.0, d.mean or 0.0)))
    return low, high


def seeds_that_agree(d: Difference) -> int:
    """Return how many seeds would show the difference if they all agree."""
    if isinstance(d.method, TwoCounts):
        return next(n for n in range(1, MOST_SEEDS) if d.comparisons * TwoCounts(n, 0, n).p_value < 1 - CONFIDENCE)
    if d.method:  # labels exchanged among 2 n seeds, and its p-value doubled (`share_test`)
        return next(n for n in range(1, MOST_SEEDS) if 4 * d.comparisons / math.comb(2 * n, n) < 1 - CONFIDENCE)
    return seeds_to_claim(d.comparisons)


# Words


def capital(text: str) -> str:
    """Return the text as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def ended(text: str) -> str:
    """Return the text with a period at its end."""
    return f"{text.removesuffix('.')}."


def counted(seeds: int) -> str:
    """Return a number of seeds in words, "3 seeds"."""
    return f"{seeds} seed{'s' * (seeds != 1)}"


def missing_seeds(missing: Sequence[int], whose: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {whose} {are} missing ({', '.join(map(str, missing))})"


def p_text(p: float) -> str:
    """Return a p-value as tables and sentences print it: never 0."""
    return f"{SMALLEST_P:.0e} or less" if p <= SMALLEST_P else f"{p:.2g}"
