"""Sentences on differences: how large they are, how sure, and what would make them surer."""

import math

from poslab.comparison.missing_seeds import incomplete_sentence
from poslab.statistics.counts import TwoCounts
from poslab.statistics.intervals import Interval
from poslab.statistics.paired import CONFIDENCE, FEWEST_SEEDS, Difference, Estimate
from poslab.statistics.permutation import seeds_to_claim
from poslab.statistics.power import MOST_SEEDS, seeds_needed
from poslab.tasks import Metric
from poslab.tasks.metric import loss_metric

NATS = loss_metric(None)
SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions


def p_text(p: float) -> str:
    """Return a p-value as tables and sentences print it: never 0."""
    return f"{SMALLEST_P:.0e} or less" if p <= SMALLEST_P else f"{p:.2g}"


def sentence(
    name: str, baseline: str, difference: Difference, effect: float | None = None, metric: Metric = NATS
) -> str:
    """Return a sentence on a difference that claims no more than the corrected p-value.

    effect: by default `usual_effect`. A claimed difference is given as a size, with the ends of its interval in the
    same direction; one that is not claimed is name - baseline.
    """
    d, effect = difference, effect or usual_effect(metric)
    if not d.outcomes.complete:
        claim = ("better" if d.leaning * metric.sign < 0 else "worse") if d.significant else ""
        return incomplete_sentence(d.outcomes, name, baseline, claim, _of_survivors(d, metric))
    if d.mean is None:
        return f"{name} and {baseline} have no seed in common"
    size, word = abs(d.mean), "better" if d.mean * metric.sign < 0 else "worse"
    amount = f"{size:.{_decimals(metric, size)}f}{_unit_after(metric)}"
    if d.n < FEWEST_SEEDS:
        was = f"was {amount} {word} than {baseline}" if size else f"and {baseline} were equal"
        if d.n == 1:
            return f"{name} {was} in one run each; one run says nothing about chance"
        return f"{name} {was} in the mean of {d.n} seeds; to claim a difference takes {FEWEST_SEEDS} or more"
    if d.interval is None or (d.sd == 0 and not d.significant):
        said = _of_equal_differences(name, baseline, d, f"{word} than {baseline} by {amount}" if size else "")
        return said if metric.is_proportion or not size else f"{said}; losses that were trained never differ so evenly"
    if d.significant:
        low, high = sorted(map(abs, d.interval))
        return f"{name} is {word} than {baseline} by {_at_least(size, low, high, metric)}, n = {d.n}"
    text = f"no difference between {name} and {baseline} can be shown with n = {d.n}"
    text += f" ({_numbers(d.mean, d.interval, d.comparisons, metric)})"
    if d.interval.low > 0 or d.interval.high < 0:
        text += f"; the interval excludes 0, but p = {p_text(d.p_value or 0)} by the exact test and Holm's correction"
    if effect is None:
        return f"{text}; with effect=NUMBER, a difference that matters, this says how many seeds would show it"
    needed = seeds_needed(d.sd or 0.0, effect, alpha=(1 - CONFIDENCE) / d.comparisons)
    needed = max(needed, _seeds_that_agree(d)) if metric.is_proportion else needed
    return f"{text}; {_outlook(*d.interval, needed, d.n, effect)}"


def _of_survivors(d: Difference, metric: Metric) -> str:
    if d.mean is None:
        return ""
    if d.interval is None:
        return f"{d.mean:+.{_decimals(metric, d.mean)}f}{_unit_after(metric)}, n = {d.n}"
    return f"{_numbers(d.mean, d.interval, d.comparisons, metric)}, n = {d.n}"


def usual_effect(metric: Metric) -> float | None:
    """Return a difference that matters: 0.02 nats, or a tenth of all examples; None for other units."""
    return 0.1 if metric.is_proportion else 0.02 if _unit(metric) == "nats" else None


def _of_equal_differences(name: str, baseline: str, d: Difference, verdict: str) -> str:
    """Return a sentence on figures that differ by the same amount in all seeds.

    verdict: "better than ... by 1.00 of the examples", if any.
    """
    if not verdict:
        return f"{name} and {baseline} were equal in each of {d.n} seeds"
    if d.significant:
        return f"{name} is {verdict} in each of {d.n} seeds"
    few = f"too few to claim it (p = {p_text(d.p_value or 0)}); {_seeds_that_agree(d)} such seeds would do"
    return f"{name} was {verdict} in each of {d.n} seeds, {few}"


def _seeds_that_agree(d: Difference) -> int:
    """Return how many seeds would show the difference if they all agree."""
    if isinstance(d.method, TwoCounts):
        return next(n for n in range(1, MOST_SEEDS) if d.comparisons * TwoCounts(n, 0, n).p_value < 1 - CONFIDENCE)
    if d.method:  # labels exchanged among 2 n seeds, and its p-value doubled (`share_test`)
        return next(n for n in range(1, MOST_SEEDS) if 4 * d.comparisons / math.comb(2 * n, n) < 1 - CONFIDENCE)
    return seeds_to_claim(d.comparisons)


def token_sentence(name: str, baseline: str, difference: Estimate, part: str = "validation") -> str | None:
    """Return a sentence on a `token_difference` of two checkpoints on that part of the text.

    None if there are too few tokens for an interval.
    """
    if difference.interval is None:
        return None
    mean, (low, high) = difference.mean, difference.interval
    if low <= 0 <= high:
        verdict = f"can't be told apart: {mean:+.3f} nats [{low:+.3f}, {high:+.3f}]"
    else:
        word = "better" if mean < 0 else "worse"
        smaller, larger = sorted((abs(low), abs(high)))
        verdict = f"differ: {name}'s is {word} by {abs(mean):.3f} nats [{smaller:.3f}, {larger:.3f}]"
    chosen = ", which chose them," if part == "validation" else ""
    checkpoints = f"on the {difference.n:,} {part} tokens{chosen or ','} the checkpoints of {name} and {baseline}"
    return f"{checkpoints} {verdict}; another seed may reverse this"


def _outlook(low: float, high: float, needed: int, n: int, effect: float) -> str:
    """Return what a comparison without a significant difference implies about one of `effect`."""
    if needed >= MOST_SEEDS:
        return f"{MOST_SEEDS:,} seeds or more would be needed to see {effect:g}"
    if needed > n:
        return f"about {needed:,} seeds would be needed to see {effect:g}"
    if -effect < low and high < effect:
        return f"a difference of {effect:g} would probably have been seen"
    # The power was high before the experiment, but the interval that came out is wide.
    return f"{n} seeds usually show a difference of {effect:g}, yet the interval does not exclude it"


def _at_least(size: float, low: float, high: float, metric: Metric) -> str:
    """Return a claimed size with the ends of its interval, "0.080 nats, at least 0.050 and at most 0.110"."""
    places = _decimals(metric, low, size, high)
    least = f"at least {low:.{places}f}" if low else "more than 0"
    return f"{size:.{places}f}{_unit_after(metric)}, {least} and at most {high:.{places}f}"


def _numbers(mean: float, interval: Interval, comparisons: int, metric: Metric) -> str:
    """Return a difference that is not claimed with its interval, "-0.010 nats [-0.030, 0.010]"."""
    low, high = interval
    places = _decimals(metric, low, high) if low <= 0 <= high else _decimals(metric, low, mean, high)
    all_at_once = f" for {comparisons} comparisons at once" if comparisons > 1 else ""
    return f"{mean:z.{places}f}{_unit_after(metric)} [{low:z.{places}f}, {high:z.{places}f}]{all_at_once}"


def _unit(metric: Metric) -> str:
    """Return the unit within a sentence: "nats" for "nats per token"."""
    return metric.unit.partition(" per ")[0]


def _unit_after(metric: Metric) -> str:
    """Return the unit as it stands after a number, with a space before it if there is one."""
    return f" {_unit(metric)}".rstrip()


def _decimals(metric: Metric, *numbers: float) -> int:
    """Return 3 decimals, for proportions 2, so that sentences in a list compare; more if numbers would look equal, or
    0."""
    told_apart, fewest = {0.0, *numbers}, 2 if metric.is_proportion else 3
    return next((d for d in range(fewest, 12) if len({round(x, d) for x in told_apart}) == len(told_apart)), 12)
