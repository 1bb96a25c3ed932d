"""Findings of a comparison, with their numbers, and the words for them: the only file that has those.

A finding claims no more than its corrected p-value or interval allows. Each is one sentence without its full stop; a
claimed difference says "is better than" or "is worse than".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from poslab.statistics.best import BestSet
from poslab.statistics.counts import TwoCounts
from poslab.statistics.paired import CONFIDENCE, FEWEST_SEEDS, Difference, Estimate
from poslab.statistics.permutation import seeds_to_claim
from poslab.statistics.power import MOST_SEEDS, plan_seeds
from poslab.statistics.proportions import Proportion, at_most
from poslab.statistics.text_blocks import FEWEST_BLOCKS

SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions
BETTER, WORSE = "better", "worse"


class Measure(Protocol):
    """Kind of figures: their unit, "nats per token" or "of the examples"; sign: 1 where lower ones are better."""

    @property
    def unit(self) -> str: ...
    @property
    def is_proportion(self) -> bool: ...
    @property
    def sign(self) -> int: ...


@dataclass(frozen=True)
class Finding:
    """Finding on `first` and `second`, whose difference is first minus second. remarks: what weakens or extends it."""

    first: str
    second: str
    difference: Difference
    measure: Measure
    remarks: Sequence[str] = field(default=(), kw_only=True)

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


@dataclass(frozen=True)
class Equal(Finding):
    """Difference shown to be smaller than `margin`, by two one-sided tests."""

    margin: float = 0.0

    @property
    def claim(self) -> str:
        said = f"{self.first} and {self.second} are equal within {self.margin:g}{unit_after(self.measure)}"
        return f"{said} ({self.numbers}, n = {self.difference.n})"


@dataclass(frozen=True)
class NotShown(Finding):
    """Difference that is not claimed, and how many seeds would show one of `effect`; None: no size that matters."""

    effect: float | None = None

    @property
    def claim(self) -> str:
        d = self.difference
        said = f"no difference between {self.first} and {self.second} can be shown with n = {d.n} ({self.numbers})"
        if d.interval is not None and (d.interval.low > 0 or d.interval.high < 0):
            said += (
                f"; the interval excludes 0, but p = {p_text(d.p_value or 0)} by the exact test and Holm's correction"
            )
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
        was = f"was {self.amount} {self.word} than {self.second}" if self.size else f"and {self.second} were equal"
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
    d, two = difference, (first, second, difference, measure)
    margin = effect if effect or measure.is_proportion else usual_effect(measure)  # a tenth is no small difference
    effect = effect or usual_effect(measure)
    alike = d.interval is None or d.sd == 0
    if not d.outcomes.complete and (d.mean is not None or any(d.outcomes.diverged) or d.outcomes.unsettled):
        return Incomplete(*two, remarks=remarks)
    if d.mean is None or d.n < FEWEST_SEEDS:
        return TooFew(*two, remarks=remarks)
    if d.mean and alike and unit(measure) == "nats":
        remarks = ["losses that were trained never differ so evenly", *remarks]
    if d.significant:
        return Shown(*two, remarks=remarks)
    if alike:
        return AllAlike(*two, remarks=remarks)
    if margin is not None and d.equal_within(margin):
        return Equal(*two, margin, remarks=remarks)
    return NotShown(*two, effect, remarks=remarks)


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


# Of all groups


def summary(findings: Mapping[str, Finding], baseline: str) -> list[str]:
    """Return one line for each kind of finding against the baseline, with the groups that it is of, by label."""
    lines: dict[str, list[str]] = {}
    for label, found in findings.items():
        d = found.difference
        said = f"no difference from {baseline} can be shown of"
        if d.significant:
            said = f"each is {found.word} than {baseline}"
        elif isinstance(found, Equal):
            said = f"equal to {baseline} within {found.margin:g}{unit_after(found.measure)}"
        elif isinstance(found, AllAlike) and found.size:
            said = f"{found.word} than {baseline} in every seed, too few to claim it"
        lines.setdefault(said, []).append(label)
    order = sorted(lines.items(), key=lambda item: ("each is" not in item[0], "equal" not in item[0]))
    found_lines = [f"{said}: {', '.join(of)} ({len(of)} of {len(findings)})" for said, of in order]
    incomplete = [label for label, found in findings.items() if not found.difference.outcomes.complete]
    return found_lines + ([f"seeds missing or diverged: {', '.join(incomplete)}"] if incomplete else [])


def best_sentence(best: BestSet, others: Sequence[str]) -> str:
    """Return the sentence on the best set. others: the groups that are not in it."""
    sure = f"{100 * best.confidence:.4g} % sure"
    if not others:
        return f"best: any of {', '.join(best.members)} may be ({sure})"
    if len(best.members) == 1:
        return f"best: {best.members[0]} ({sure})"
    return f"best: one of {', '.join(best.members)} ({sure}); not {', '.join(others)}"


def unfailed_sentence(n: int) -> str:
    """Return what n seeds without a failure say of further ones."""
    upto = per_cent(at_most(0, n))
    return f"0 of {n} seeds of each scheme failed, so up to {upto} of further ones may, which no test of these can show"


def solved_sentence(name: str, solved: Proportion) -> str:
    """Return how often a scheme solves a task, as far as its seeds tell."""
    range_ = f"{per_cent(solved.low)} to {per_cent(solved.high)}"
    return f"{name} solved the task in {solved.count} of {solved.n} seeds, so {range_} of further seeds would"


def lost_sentence(name: str, planned: int, diverged: int) -> str:
    """Return the sentence on a group without a finished run."""
    if not planned:
        return f"{name} has no such figure"
    parts = [f"{diverged} of {planned} seeds diverged"] if diverged else []
    parts += [f"{planned - diverged} of {planned} seeds are missing"] if planned > diverged else []
    return f"{name} has no finished run: {', '.join(parts)}"


def lost_count(planned: int, diverged: int) -> str:
    """Return the number of seeds of a group without a finished run, in words, "0 (2 diverged, 1 missing)"."""
    parts = [f"{count} {word}" for count, word in ((diverged, "diverged"), (planned - diverged, "missing")) if count]
    return f"0 ({', '.join(parts)})" if parts else "0"


def looks_sentence(earlier: Sequence[int]) -> str:
    """Return the caveat on seeds that were planned after comparisons of so many seeds."""
    before = ", then ".join(f"{seeds} seeds" for seeds in earlier)
    return (
        f"further seeds were planned after a comparison of {before}: whoever may look again finds more differences by "
        f"chance, so p-values and intervals are corrected for {1 + len(earlier)} looks"
    )


def without_baseline(names: Sequence[str]) -> str:
    """Return why nothing is claimed against a baseline that might have been another group."""
    be = f"be {names[0]}, which has" if len(names) == 1 else f"be {' or '.join(names)}, which have"
    return f"the baseline would {be} no finished run"


def missing_seeds(missing: Sequence[int], of_all: str) -> str:
    """Return the missing seeds in words, "2 of 5 seeds are missing (4, 5)"."""
    are = "are" if len(missing) > 1 else "is"
    return f"{len(missing)} of {of_all} {are} missing ({', '.join(map(str, missing))})"


# Remarks


def text_remark(over_seeds: Difference, over_text: Difference) -> str:
    """Return whether a claimed difference holds for other text than that which was held out, too."""
    turned = -1 if (over_seeds.mean or 0) < 0 else 1
    assert over_text.interval is not None
    low, high = sorted(turned * end for end in over_text.interval)
    which = "on this text; not shown for other text"
    if over_text.significant and (over_text.mean or 0) * (over_seeds.mean or 0) > 0:
        which = "and held-out text of this corpus"
    return f"it holds for other seeds {which}: [{low:.3f}, {high:.3f}] over seeds and text"


OTHER_WEIGHTS = "of other text nothing is known, as it was measured with the best weights, and the last are compared"
TOO_ALIKE = "of other text nothing is known, as too few of its stretches are independent"
TOO_FEW_DOCUMENTS = (
    "of other text nothing is known, as what is held out tells less of it than "
    f"{FEWEST_BLOCKS} documents of equal length"
)
COUNTED = {"bigram": "pairs of tokens", "unigram": "single tokens"}  # what models that need no training count


def convergence_remarks(
    d: Difference, losses: Mapping[str, float], untrained: Mapping[str, float], falls: Mapping[str, float]
) -> list[str]:
    """Return signs that runs were trained too briefly for their losses to be compared.

    Early in training a scheme is ahead because it moves first, and may end behind. losses, falls: mean loss, and how
    far it fell in the last tenth of the steps, by group. untrained: losses of models without training, by name.
    """
    parts = []
    early = [label for label, loss in losses.items() if loss > untrained.get("bigram", math.inf)]
    if early:
        whose = f"{early[0]}'s loss is" if len(early) == 1 else "both losses are"
        least = min(losses[label] for label in early)
        name = max((name for name in COUNTED if untrained.get(name, math.inf) < least), key=untrained.__getitem__)
        parts.append(f"{whose} above that of counting {COUNTED[name]} ({untrained[name]:.4f}): hardly trained")
    falling = [f"{label}'s (by {fall:.2g})" for label, fall in falls.items() if fall > abs(d.mean or 0.0)]
    if d.significant and falling:
        are = f"loss{'es' * (len(falling) > 1)}"
        parts.append(f"{' and '.join(falling)} {are} still fell by more than that in the last tenth of the steps")
    return parts


def checkpoints_sentence(first: str, second: str, difference: Estimate, mean: float, part: str) -> str:
    """Return the sentence on single checkpoints of two groups, compared on stretches of the same held-out text.

    mean: the difference of the compared figures. part: validation or test.
    """
    assert difference.interval is not None
    by, (low, high) = difference.mean, difference.interval
    chosen = ", which chose them," if part == "validation" else ","
    whose = f"on {difference.n:,} stretches of the {part} text{chosen} the checkpoints of {first} and {second}"
    if low * high > 0 > by * mean:
        return f"{whose} differ in the other direction ({by:+.3f} nats): these two runs can't be told apart"
    verdict = f"can't be told apart: {by:+.3f} nats [{low:+.3f}, {high:+.3f}]"
    if low * high > 0:
        smaller, larger = sorted((abs(low), abs(high)))
        verdict = f"differ: {first}'s is {BETTER if by < 0 else WORSE} by {abs(by):.3f} nats"
        verdict += f" [{smaller:.3f}, {larger:.3f}]"
    return f"{whose} {verdict}; another seed may reverse this"


# Numbers


def per_cent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


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
    """Return 3 decimals, for proportions 2, so that sentences in a list compare; more if numbers would look equal, or
    0."""
    told_apart, fewest = {0.0, *numbers}, 2 if measure.is_proportion else 3
    return next((d for d in range(fewest, 12) if len({round(x, d) for x in told_apart}) == len(told_apart)), 12)
