"""Sentences on differences: how large they are, how sure, and what would make them surer."""

from poslab.comparison.statistics import (
    CONFIDENCE,
    NATS,
    Difference,
    Estimate,
    seeds_to_claim,
)
from poslab.statistics.power import MOST_SEEDS, seeds_needed
from poslab.tasks import Metric

SMALLEST_P = 1e-6  # less is not told apart: by then all hangs on the t test's assumptions


def p_text(p: float) -> str:
    """Return a p-value as tables and sentences print it: never 0."""
    return f"{SMALLEST_P:.0e} or less" if p <= SMALLEST_P else f"{p:.2g}"


def sentence(
    name: str, baseline: str, difference: Difference, effect: float | None = None, metric: Metric = NATS
) -> str:
    """Return a sentence on a difference that claims no more than the corrected p-value.

    effect: by default `usual_effect`. A claimed difference is given as a size, with its interval's sign to match; one
    that is not claimed is name - baseline.
    """
    d, effect = difference, effect or usual_effect(metric)
    if not d.outcomes.complete:
        claim = ("better" if d.leaning * metric.sign < 0 else "worse") if d.significant else ""
        return d.outcomes.sentence(name, baseline, claim, _of_survivors(d, metric))
    if d.mean is None:
        return f"{name} and {baseline} have no seed in common"
    size, word = abs(d.mean), "better" if d.mean * metric.sign < 0 else "worse"
    amount = f"{size:.{_decimals(metric, size)}f} {_unit(metric)}"
    if d.sd is None or d.p_value is None:
        was = f"was {amount} {word} than {baseline}" if size else f"and {baseline} were equal"
        return f"{name} {was} in one run each; one run says nothing about chance"
    if d.interval is None:
        said = _of_equal_differences(name, baseline, d, f"{word} than {baseline} by {amount}" if size else "")
        return said if metric.is_proportion or not size else f"{said}; losses that were trained never differ so evenly"
    if d.significant:
        low, high = sorted(map(abs, d.interval))
        return f"{name} is {word} than {baseline} by {_numbers(size, low, high, metric)}, n = {d.n}"
    text = f"no difference between {name} and {baseline} can be shown with n = {d.n}"
    text += f" ({_numbers(d.mean, *d.interval, metric)})"
    if d.interval.low > 0 or d.interval.high < 0:
        by = "by the exact test and" if metric.is_proportion else "after"
        text += f"; the interval excludes 0, but p = {p_text(d.p_value)} {by} Holm's correction"
    needed = seeds_needed(d.sd, effect, alpha=(1 - CONFIDENCE) / d.comparisons)
    needed = max(needed, seeds_to_claim(d.comparisons)) if metric.is_proportion else needed
    return f"{text}; {_outlook(*d.interval, needed, d.n, effect)}"


def _of_survivors(d: Difference, metric: Metric) -> str:
    if d.mean is None:
        return ""
    if d.interval is None:
        return f"{d.mean:+.{_decimals(metric, d.mean)}f} {_unit(metric)}, n = {d.n}"
    return f"{_numbers(d.mean, *d.interval, metric)}, n = {d.n}"


def usual_effect(metric: Metric) -> float:
    """Return a difference that matters: 0.02 nats, or a tenth of all examples."""
    return 0.1 if metric.is_proportion else 0.02


def _of_equal_differences(name: str, baseline: str, d: Difference, verdict: str) -> str:
    """Return a sentence on figures that differ by the same amount in all seeds.

    verdict: "better than ... by 1.00 of the examples", if any.
    """
    if not verdict:
        return f"{name} and {baseline} were equal in each of {d.n} seeds"
    if d.significant:
        return f"{name} is {verdict} in each of {d.n} seeds"
    few = f"too few to claim it (p = {p_text(d.p_value or 0)}); {seeds_to_claim(d.comparisons)} such seeds would do"
    return f"{name} was {verdict} in each of {d.n} seeds, {few}"


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


def _numbers(mean: float, low: float, high: float, metric: Metric) -> str:
    places = _decimals(metric, low, high) if low <= 0 <= high else _decimals(metric, low, mean, high)
    return f"{mean:z.{places}f} {_unit(metric)} [{low:z.{places}f}, {high:z.{places}f}]"


def _unit(metric: Metric) -> str:
    """Return the unit within a sentence: "nats" for "nats per token"."""
    return metric.unit.partition(" per ")[0]


def _decimals(metric: Metric, *numbers: float) -> int:
    """Return 3 decimals, for proportions 2, so that sentences in a list compare; more if numbers would look equal, or
    0."""
    told_apart, fewest = {0.0, *numbers}, 2 if metric.is_proportion else 3
    return next((d for d in range(fewest, 12) if len({round(x, d) for x in told_apart}) == len(told_apart)), 12)
