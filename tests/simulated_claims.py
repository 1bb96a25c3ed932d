"""Simulated sweeps: how often comparisons make false claims, and find true differences.

    python tests/simulated_claims.py

prints the table of data/studies/simulated_claims.md. `test_simulated_claims.py` holds the same figures, of
fewer sweeps, to their limits, and the vectorised rule here to that of poslab.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from paired_figures import differences
from scipy import special, stats

from poslab.statistics.power import seeds_needed
from poslab.statistics.text import two_way

Array = np.ndarray
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
NOISES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t(3)": lambda rng, shape: rng.standard_t(3, size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
}
GROUPS, SEEDS, BLOCKS = 5, 5, 33


def sweeps(rng: np.random.Generator, noise: Draw, count: int, effects: Sequence[float], seeds: int = SEEDS) -> Array:
    """Return simulated losses (count, groups, seeds).

    The effect of a seed on all groups is ten times the noise; the last group's noise is twice that of the others.
    """
    shape = (count, len(effects), seeds)
    scale = np.ones(len(effects))
    scale[-1] = 2
    of_seeds = 10 * rng.normal(size=(count, 1, seeds))
    return 4 + of_seeds + np.array(effects)[:, None] + scale[:, None] * noise(rng, shape)


def pairs_of(groups: int, all_pairs: bool) -> list[tuple[int, int]]:
    """Return the pairs with the first group, or all pairs."""
    return [(a, b) for a in range(groups) for b in range(a + 1, groups) if all_pairs or a == 0]


def claims(losses: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    """Return the signs (sweeps, pairs) of the differences that are claimed, 0 where none is."""
    gaps = np.stack([losses[:, b] - losses[:, a] for a, b in pairs], axis=1)
    return signs(gaps.mean(-1), stats.ttest_1samp(gaps, 0, axis=-1).pvalue)


def signs(means: Array, p_values: Array) -> Array:
    """Return the signs of the differences with p below 0.05 by Holm's method along the last axis, else 0."""
    order = p_values.argsort(-1)
    count = p_values.shape[-1]
    ordered = np.take_along_axis(p_values, order, -1) * np.arange(count, 0, -1)
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, np.maximum.accumulate(ordered, -1), -1)
    return np.where(corrected < 0.05, np.sign(means), 0)


def false_claims(noise: Draw, count: int, *, all_pairs: bool, effects: Sequence[float] = (0,) * GROUPS) -> float:
    """Return the proportion of sweeps that claim a difference that does not exist, or one in the wrong direction."""
    losses = sweeps(np.random.default_rng(1), noise, count, effects)
    pairs = pairs_of(len(effects), all_pairs)
    truth = np.sign([effects[b] - effects[a] for a, b in pairs])
    found = claims(losses, pairs)
    return float(((found != 0) & (found != truth)).any(1).mean())


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
    runs, 3 % are missing. counted: whether poslab knows what was planned and what diverged, or compares the runs that
    are there.
    """
    rng, unstable, claimed = np.random.default_rng(6), GROUPS - 1, 0
    for _ in range(count):
        drawn = noise(rng, (GROUPS, 8))
        drawn[unstable] *= 3
        losses = 4 + rng.normal(size=8) + drawn
        losses[unstable, drawn[unstable] > 1] = math.inf
        there = (rng.uniform(size=losses.shape) > 0.03) & (counted | np.isfinite(losses))
        values = {
            str(group): {seed: float(losses[group, seed]) for seed in np.flatnonzero(there[group])}
            for group in range(GROUPS)
        }
        planned = {group: range(8) for group in values} if counted else None
        found = differences(values, "0", planned=planned, family=GROUPS - 1 if counted else 0)
        claimed += any(d.significant and (group != str(unstable) or d.leaning < 0) for group, d in found.items())
    return claimed / count


def crossed(rng: np.random.Generator, noise: Draw, shape: tuple[int, ...], parts: Sequence[float]) -> Array:
    """Return noise (..., S, B) around 0: parts of the seed, of the block of the text, and of both.

    Equal parts of the first two are equally large in the mean.
    """
    *rest, seeds, of_text = shape
    shapes = (*rest, seeds, 1), (*rest, 1, of_text), shape
    scales = parts[0], parts[1] * (of_text / seeds) ** 0.5, parts[2]
    return np.asarray(sum(scale * noise(rng, one) for scale, one in zip(scales, shapes, strict=True)))


def misses(gaps: Array) -> float:
    """Return the proportion of differences (R, S, B), whose truth is 0, that the 95 % interval does not cover."""
    mean, sd, freedom = two_way(gaps)
    return float(np.mean(np.abs(mean) > special.stdtrit(freedom, 0.975) * sd))


def false_claims_of_text(noise: Draw, count: int, parts: Sequence[float], *, over_text: bool = True) -> float:
    """Return the proportion of sweeps in which any of the schemes, which are alike on other text, is claimed to differ.

    Over seeds and on other text, or, without `over_text`, over seeds alone.
    """
    losses = crossed(np.random.default_rng(4), noise, (count, GROUPS, SEEDS, BLOCKS), parts)
    gaps = losses[:, 1:] - losses[:, :1]
    over_seeds = signs(gaps.mean((-2, -1)), stats.ttest_1samp(gaps.mean(-1), 0, axis=-1).pvalue)
    mean, sd, freedom = two_way(gaps)
    over_both = signs(mean, 2 * special.stdtr(freedom, -np.abs(mean) / sd))
    return float(((over_seeds != 0) & ((over_both == over_seeds) | (not over_text))).any(1).mean())


SPREADS = {"seeds alone": (1, 0, 1), "text alone": (0.1, 1, 1), "both": (1, 1, 1), "neither": (0, 0, 1)}


def main(count: int = 20_000) -> None:
    rows: dict[str, Callable[[Draw], float]] = {
        "any false claim, 4 schemes against a baseline": lambda draw: false_claims(draw, count, all_pairs=False),
        "any false claim, all 10 pairs": lambda draw: false_claims(draw, count, all_pairs=True),
        "any false claim, all pairs, two of five differ": lambda draw: false_claims(
            draw, count, all_pairs=True, effects=(0, 0, 0, 3, 6)
        ),
        "power where 80 % are stated, 10 seeds": lambda draw: power(draw, count),
    }
    for name, parts in SPREADS.items():
        rows[f"misses of a 95 % interval over seeds and text; differences vary by {name}"] = lambda draw, parts=parts: (
            misses(crossed(np.random.default_rng(5), draw, (count // 4, SEEDS, BLOCKS), parts))
        )
    rows["any false claim, 8 seeds, one scheme diverges where its loss is high"] = lambda draw: (
        false_claims_of_survivors(draw, count // 20)
    )
    rows["... if the runs that are there were compared"] = lambda draw: false_claims_of_survivors(
        draw, count // 20, counted=False
    )
    rows["any false claim for other text, 4 schemes that differ on this one"] = lambda draw: false_claims_of_text(
        draw, count // 10, SPREADS["text alone"]
    )
    rows["... if claims over seeds were taken for it"] = lambda draw: false_claims_of_text(
        draw, count // 10, SPREADS["text alone"], over_text=False
    )
    print("| of simulated sweeps with 5 seeds, % | " + " | ".join(NOISES) + " |")
    print("| --- |" + " --- |" * len(NOISES))
    for name, share in rows.items():
        print(f"| {name} | " + " | ".join(f"{100 * share(draw):.1f}" for draw in NOISES.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
