"""Simulated sweeps whose truth is known, what a page claims of them, and how often that is false.

`tests/seedstats/test_simulated_claims.py` holds the same figures, of fewer sweeps, to their limits, and the vectorised
rule here to that of seedstats.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from seedstats import compare
from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import Difference, paired
from seedstats.statistics.permutation import sign_flip_test
from seedstats.statistics.power import plan_seeds, seeds_needed
from seedstats.table import checked

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
Pairs = Sequence[tuple[int, int]]
NOISES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t(3)": lambda rng, shape: rng.standard_t(3, size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
}


def bimodal(apart: float) -> Draw:
    """Return normal noise around one of two modes, so many standard deviations apart, whichever a seed falls into."""
    return lambda rng, shape: rng.normal(size=shape) + apart * (rng.integers(0, 2, shape) - 0.5)


def bad_seeds(by: float) -> Draw:
    """Return normal noise to which one run in ten adds so many standard deviations."""
    return lambda rng, shape: rng.normal(size=shape) + by * (rng.random(shape) < 0.1)


def correlated(r: float) -> Draw:
    """Return normal noise that has this correlation between schemes over seeds."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        *pages, _, seeds = shape
        return math.sqrt(r) * rng.normal(size=(*pages, 1, seeds)) + math.sqrt(1 - r) * rng.normal(size=shape)

    return draw


def one_scheme(of_one: Draw, which: int = 1) -> Draw:
    """Return normal noise, and other noise of the same mean in one scheme; the baseline is the first, 0."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        noise = rng.normal(size=shape)
        noise[..., which, :] = of_one(rng, noise[..., which, :].shape)
        return noise

    return draw


def rare(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return noise of mean 0 that is mostly a little below it, and 10 standard deviations above in one run of ten."""
    return rng.normal(size=shape) + 10 * (rng.random(shape) < 0.1) - 1


# Noise (pages, sections, schemes, seeds), for which all schemes have the same mean.
WORLDS: dict[str, Draw] = {
    "normal": NOISES["normal"],
    "normal, correlation over seeds .93": correlated(0.93),
    "normal, correlation over seeds .5": correlated(0.5),
    "t(3)": NOISES["t(3)"],
    "one scheme five times as noisy": one_scheme(lambda rng, shape: 5 * rng.normal(size=shape)),
    "one scheme skewed": one_scheme(NOISES["skewed"]),
    "one bad run in ten, by 5 sd": bad_seeds(5),
    "one bad run in ten, by 20 sd": bad_seeds(20),
    "bimodal, modes 4 sd apart": bimodal(4),
    "bimodal, modes 10 sd apart": bimodal(10),
}
EXCEPTIONS: dict[str, Draw] = {
    "the baseline skewed": one_scheme(NOISES["skewed"], which=0),
    "one scheme has one bad run in ten": one_scheme(rare),
    "the baseline has one bad run in ten": one_scheme(rare, which=0),
}


@dataclass(frozen=True)
class Size:
    """Size of a page."""

    seeds: int = 5
    schemes: int = 4
    sections: int = 1
    all_pairs: bool = False

    @property
    def pairs(self) -> Pairs:
        """Return the pairs with the first scheme, or all pairs."""
        return [pair for pair in combinations(range(self.schemes), 2) if self.all_pairs or pair[0] == 0]


# Losses


@dataclass(frozen=True)
class Found:
    """Claims of pages: signs of differences, 0 where nothing is claimed, and intervals; all (pages, tests)."""

    signs: Array
    low: Array
    high: Array

    def false(self, truth: Array) -> Array:
        """Return of each page whether a claim is not so. truth: true differences (tests)."""
        return ((self.signs != 0) & (self.signs != np.sign(truth))).any(1)

    def missing(self, truth: Array) -> Array:
        """Return of each page whether some interval beside a claim misses the true difference."""
        return ((self.signs != 0) & ((truth < self.low) | (truth > self.high))).any(1)


def find(losses: Array, pairs: Pairs, *, limited: bool = True, looks: int = 1) -> Found:
    """Return what pages claim of losses (pages, sections, schemes, seeds), as seedstats does.

    limited: whether the sd is at least half of what is usual, as in seedstats. looks: that pages are corrected for.
    """
    n = losses.shape[-1]
    gaps = np.stack([losses[:, :, b] - losses[:, :, a] for a, b in pairs], axis=2)
    every = combinations(range(losses.shape[2]), 2)
    sds = np.stack([(losses[:, :, a] - losses[:, :, b]).std(-1, ddof=1) for a, b in every], axis=2)
    usual = np.quantile(sds, min(0.5, 2 / n), axis=-1, keepdims=True) if limited and sds.shape[2] > 2 else 0.0
    error = np.maximum(gaps.std(-1, ddof=1), usual / 2) / n**0.5
    mean, error = (of.reshape(len(losses), -1) for of in (gaps.mean(-1), error))
    p_values = 2 * special.stdtr(n - 1, -np.abs(mean) / error)
    half = special.stdtrit(n - 1, 1 - 0.025 / (looks * mean.shape[1])) * error
    return with_intervals(mean, p_values, mean - half, mean + half, looks)


def with_intervals(mean: Array, p_values: Array, low: Array, high: Array, looks: int = 1) -> Found:
    """Return what is claimed by Holm's method over the last axis; intervals of claims end at 0."""
    claimed = signs(mean, p_values, looks)
    return Found(
        claimed, np.where(claimed > 0, np.maximum(low, 0), low), np.where(claimed < 0, np.minimum(high, 0), high)
    )


def signs(means: Array, p_values: Array, looks: int = 1) -> Array:
    """Return the signs of the differences with p below 0.05 by Holm's method along the last axis, else 0."""
    order = p_values.argsort(-1)
    count = p_values.shape[-1]
    ordered = np.take_along_axis(p_values, order, -1) * (looks * count - np.arange(count))
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, np.maximum.accumulate(ordered, -1), -1)
    return np.where(corrected < 0.05, np.sign(means), 0)


def pages(
    draw: Draw, size: Size, count: int, effects: Sequence[float], seed: int = 1, *, limited: bool = True
) -> Iterator[Found]:
    """Yield what simulated pages claim, in parts of a few million numbers. effects: of the schemes, in all sections."""
    rng = np.random.default_rng(seed)
    each = size.sections * size.schemes * size.seeds * max(1, size.schemes // 3)
    part = max(1, 4_000_000 // each)
    for start in range(0, count, part):
        noise = draw(rng, (min(part, count - start), size.sections, size.schemes, size.seeds))
        yield find(4 + noise + np.asarray(effects)[:, None], size.pairs, limited=limited)


def half_differ(schemes: int) -> tuple[float, ...]:
    """Return effects of which half are 0 and the others 1, 2, 3, 1, ... sd, up and down."""
    return tuple(0.0 if k % 2 == 0 else (1 + k // 2 % 3) * (-1) ** (k // 2) for k in range(schemes))


@cache
def rates(
    draw: Draw, size: Size, count: int, effects: tuple[float, ...] = (), *, limited: bool = True
) -> tuple[float, float]:
    """Return the proportions of pages with any false claim, and with an interval beside a claim that misses."""
    effects = effects or (0.0,) * size.schemes
    truth = np.tile([effects[b] - effects[a] for a, b in size.pairs], size.sections)
    found = [(of.false(truth), of.missing(truth)) for of in pages(draw, size, count, effects, limited=limited)]
    false, missing = map(np.concatenate, zip(*found, strict=True))
    return float(false.mean()), float(missing.mean())


def false_among_claims(seeds: int, effect: float, count: int, *, limited: bool = True) -> float:
    """Return the proportion of claims that are false where two of four schemes differ by so many sd of a difference."""
    effects = np.array([0.0, 0.0, 1.0, -1.0]) * effect * 2**0.5
    truth, false, made = effects[1:], 0, 0
    for found in pages(NOISES["normal"], Size(seeds), count, effects.tolist(), limited=limited):
        false += int(((found.signs != 0) & (found.signs != np.sign(truth))).sum())
        made += int((found.signs != 0).sum())
    return false / made


def shown(draw: Draw, size: Size, count: int, effect: float) -> float:
    """Return the proportion of pages that claim a difference of one scheme by `effect` sd, all others being alike."""
    effects = [0.0, effect] + [0.0] * (size.schemes - 2)
    found = np.concatenate([of.signs[:, 0] > 0 for of in pages(draw, size, count, effects, seed=2)])
    return float(found.mean())


# Looks, with seeds added in between

FOUR = Size().pairs  # of four schemes, which are equal
MOST_ADDED = 100  # seeds: nobody adds more


def false_at_looks(noise: Draw, seeds: Sequence[int], corrections: Sequence[int], count: int) -> float:
    """Return the proportion of studies of four equal schemes that make a claim at any look.

    seeds: how many there are at each look. corrections: for how many looks each page is corrected.
    """
    losses = 4 + noise(np.random.default_rng(12), (count, 1, 4, seeds[-1]))
    pages = zip(seeds, corrections, strict=True)
    return float(np.any([claims(losses[..., :n], looks) for n, looks in pages], axis=0).mean())


def false_after_plan(noise: Draw, pilot: int, looks: int, count: int) -> float:
    """Return the proportion of studies of four equal schemes that make a claim at `pilot` seeds, or at the number that
    this page then plans with. looks: for how many the second page is corrected.

    The effect that matters is the standard deviation of a difference; of the page's numbers the largest one is taken.
    """
    losses = 4 + noise(np.random.default_rng(13), (count, 1, 4, MOST_ADDED))
    first = losses[..., :pilot]
    sds = np.stack([(first[:, 0, b] - first[:, 0, a]).std(-1, ddof=1) for a, b in FOUR], axis=1).max(1)
    effect, found = sd_of_difference(noise), claims(first, 1)
    assured = [plan_seeds(float(sd), pilot, effect, alpha=0.05 / len(FOUR)).assured for sd in sds]
    numbers = np.clip(assured, pilot, MOST_ADDED)
    for n in np.unique(numbers):
        found[numbers == n] |= claims(losses[numbers == n, ..., :n], looks)
    return float(found.mean())


def claims(losses: Array, looks: int) -> Array:
    """Return (pages,) whether anything is claimed of losses (pages, 1, 4, seeds)."""
    return np.asarray((find(losses, FOUR, looks=looks).signs != 0).any(1))


# Proportions


def solved(rng: np.random.Generator, rates: Sequence[float], count: int, seeds: int, r: float = 0.0) -> Array:
    """Return 0 and 1 (sweeps, schemes, seeds): whether runs solve a task. r: correlation over seeds behind that."""
    hidden = correlated(r)(rng, (count, len(rates), seeds))
    return (hidden < special.ndtri(np.asarray(rates))[:, None]).astype(float)


def find_solved(values: Array) -> Found:
    """Return what is claimed of schemes that solve or fail, against the first one, as seedstats does."""
    n, comparisons = values.shape[-1], values.shape[1] - 1
    each = range(n + 1)
    counts = [[TwoCounts(a, b, n) for b in each] for a in each]
    p_values = np.array([[counts[a][b].p_value for b in each] for a in each])
    ends = np.array([[counts[a][b].interval((a - b) / n, 1 - 0.05 / comparisons) for b in each] for a in each])
    solved = values.sum(-1).astype(int)
    first, others = solved[:, :1], solved[:, 1:]
    low, high = np.moveaxis(ends[others, first], -1, 0)
    return with_intervals((others - first) / n, p_values[others, first], low, high)


def rates_of_solved(rates: Sequence[float], seeds: int, count: int, r: float = 0.0) -> tuple[float, float, float]:
    """Return the proportions of sweeps with any false claim, with an interval beside a claim that misses, and that
    claim the last scheme to differ."""
    found = find_solved(solved(np.random.default_rng(7), rates, count, seeds, r))
    truth = np.subtract(rates[1:], rates[0])
    shown = found.signs[:, -1] != 0
    return float(found.false(truth).mean()), float(found.missing(truth).mean()), float(shown.mean())


def graded(rng: np.random.Generator, schemes: int, seeds: int) -> Array:
    """Return proportions (schemes, seeds): one run in three solves the task, others get any part of it right."""
    shape = (schemes, seeds)
    return np.where(rng.random(shape) < 1 / 3, 0.97 + 0.03 * rng.random(shape), rng.beta(1, 2, shape))


def compared(groups: Sequence[Mapping[int, float]], planned: Collection[int] = (), **kind: bool) -> list[Difference]:
    """Compare the first of the groups, figures by seed, with each other one. planned: seeds of them all."""
    pairs = {number: (group, groups[0]) for number, group in enumerate(groups) if number}
    family = len(pairs) if planned else 0
    alone = paired(pairs, planned=dict.fromkeys(pairs, planned), groups=family + 1, **kind)
    return list(one_family([alone], [family])[0].values())


def false_claims_of_graded(schemes: int, seeds: int, count: int) -> float:
    rng = np.random.default_rng(8)
    drawn = ([dict(enumerate(of)) for of in graded(rng, schemes, seeds).tolist()] for _ in range(count))
    return sum(any(d.significant for d in compared(groups, proportion=True)) for groups in drawn) / count


# Stated power, and runs that diverged

GROUPS = 5


def power(noise: Draw, count: int, ratio: float = 1.0) -> float:
    """Return the proportion of pairs whose difference is found with as many seeds as `seeds_needed` asks for.

    ratio: the difference in standard deviations of the differences.
    """
    n = seeds_needed(1.0, ratio)
    rng = np.random.default_rng(2)
    gaps = (noise(rng, (count, n)) - noise(rng, (count, n))) / sd_of_difference(noise) + ratio
    found = (stats.ttest_1samp(gaps, 0, axis=1).pvalue < 0.05) & (gaps.mean(1) > 0)
    return float(found.mean())


def sd_of_difference(noise: Draw) -> float:
    drawn = noise(np.random.default_rng(3), (2, 1_000_000))
    return float((drawn[0] - drawn[1]).std())


def false_claims_of_survivors(noise: Draw, count: int, *, counted: bool = True) -> float:
    """Return the proportion of sweeps of 8 seeds with any false claim.

    False is that one of three stable schemes, which are alike, differs from the baseline, or that an unstable one is
    better. Its noise is three times as large, and its high losses diverge, so that the surviving runs look good; of all
    runs, 3 % are missing. counted: whether what was planned and what diverged is known; else the runs that are there
    are compared.
    """
    rng, unstable, claimed = np.random.default_rng(6), GROUPS - 1, 0
    for _ in range(count):
        drawn = noise(rng, (GROUPS, 8))
        drawn[unstable] *= 3
        losses = 4 + rng.normal(size=8) + drawn
        losses[unstable, drawn[unstable] > 1] = math.inf
        there = (rng.uniform(size=losses.shape) > 0.03) & (counted | np.isfinite(losses))
        groups = [
            {int(seed): float(losses[group, seed]) for seed in np.flatnonzero(there[group])} for group in range(GROUPS)
        ]
        found = compared(groups, range(8) if counted else ())
        claimed += any(d.significant and (group < unstable or d.leaning < 0) for group, d in enumerate(found, 1))
    return claimed / count


# Claims that were written before the runs


def false_interactions(draw: Draw, seeds: int, count: int) -> float:
    """Return the proportion of claims of an interaction that are shown where there is none."""
    first, second, third, fourth = draw(np.random.default_rng(14), (count, 1, 4, seeds))[:, 0].swapaxes(0, 1)
    effects = (second - first) - (fourth - third)
    return float(np.mean([sign_flip_test(of_seeds, "greater") < 0.05 for of_seeds in effects]))


# Names at their best settings


def false_claims_of_grids(draw: Draw, settings: Sequence[int], seeds: int, count: int) -> float:
    """Return the proportion of pages with a false claim, where names with so many settings each are all equal and the
    settings are chosen by what is compared."""
    cells = [(str(name), str(setting)) for name, number in enumerate(settings) for setting in range(number)]
    claimed = 0
    for page in draw(np.random.default_rng(15), (count, 1, len(cells), seeds))[:, 0]:
        rows = [
            (name, setting, seed, value)
            for (name, setting), values in zip(cells, page, strict=True)
            for seed, value in enumerate(values)
        ]
        found = compare(checked(pd.DataFrame(rows, columns=["name", "rate", "seed", "value"])), better="lower")
        one = found["results"]
        of_settings = (effect.difference for effect in one.setting_effects)
        claimed += any(d.significant for d in (*one.differences.values(), *of_settings))
    return claimed / count
