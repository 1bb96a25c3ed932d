"""Simulated studies: how often the further estimates of `seedstats.statistics` hold what they state.

`tests/seedstats/test_simulated_estimates.py` holds the same figures, of fewer studies, to their limits.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import numpy as np
from scipy import special, stats

from seedstats.statistics.best import rank_intervals
from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.failures import failed_runs
from seedstats.statistics.families import holm, one_family
from seedstats.statistics.paired import Difference, paired
from seedstats.statistics.power import plan_seeds, seeds_needed
from seedstats.statistics.proportions import at_most, proportion
from simulations.claims import table
from simulations.sweeps import NOISES, Array, Draw, correlated, one_scheme


def _one_noisy(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The first of the schemes is five times as noisy as the others."""
    drawn = rng.normal(size=shape)
    drawn[..., 0, :] *= 5
    return drawn


# Noise (..., schemes, seeds) of mean 0 and, but for the noisy scheme, sd 1.
WORLDS: dict[str, Draw] = {
    "normal": NOISES["normal"],
    "t(3)": lambda rng, shape: NOISES["t(3)"](rng, shape) / 3**0.5,
    "one skewed scheme": one_scheme(NOISES["skewed"], which=0),
    "one noisy scheme": _one_noisy,
}
SEEDS = (3, 5, 10)


def differences(world: str, count: int, n: int, seed: int = 1) -> Array:
    """Return paired differences (count, n) of two schemes with equal means, with an sd of 1."""
    drawn = WORLDS[world](np.random.default_rng(seed), (count, 2, n))
    return (drawn[:, 0] - drawn[:, 1]) / (26**0.5 if world == "one noisy scheme" else 2**0.5)


# Number of seeds


def power_of_planned(world: str, count: int, pilot: int, effect: float = 0.6) -> tuple[float, float]:
    """Return the power of a new study of the expected number of seeds, and how often the assured number reaches 80 %.

    effect: in standard deviations of the differences.
    """
    spreads = [float(sd) for sd in differences(world, count, pilot).std(1, ddof=1)]
    planned = [(seeds_needed(sd, effect), plan_seeds(sd, pilot, effect).assured) for sd in spreads]
    sizes = np.unique(np.geomspace(2, 500, 40).astype(int))
    power = [_power(world, int(n), effect) for n in sizes]
    expected, assured = np.interp(np.minimum(planned, 500), sizes, power).T
    return float(expected.mean()), float((assured >= 0.795).mean())  # the power itself is simulated


def _power(world: str, n: int, effect: float, count: int = 4000) -> float:
    gaps = differences(world, count, n, seed=2) + effect
    t = gaps.mean(1) / gaps.std(1, ddof=1) * n**0.5
    return float((t > special.stdtrit(n - 1, 0.975)).mean())


# All or nothing


def rejections(of: Callable[[int, int, int, int], float], n: int, first: float, second: float, alpha: float) -> float:
    """Return how often a test of two groups of n seeds that solve with these probabilities has p <= alpha; exact."""
    by_first, by_second = (stats.binom.pmf(range(n + 1), n, p) for p in (first, second))
    return float(sum(by_first[a] * by_second[b] for a, b in _pairs(n) if of(a, n, b, n) <= alpha))


def false_differences(of: Callable[[int, int, int, int], float], n: int, alpha: float) -> float:
    """Return the highest rate of false differences, over all probabilities to solve that both have; exact."""
    grid = np.linspace(0.01, 0.99, 99)
    pmf = stats.binom.pmf(np.arange(n + 1)[:, None], n, grid)  # (n + 1, 99)
    return float(np.max(sum(pmf[a] * pmf[b] for a, b in _pairs(n) if of(a, n, b, n) <= alpha)))


def _pairs(n: int) -> Iterable[tuple[int, int]]:
    return ((a, b) for a, b in product(range(n + 1), repeat=2) if a != b)


def fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    table = [[first, of_first - first], [second, of_second - second]]
    return float(stats.fisher_exact(table).pvalue)


def barnard(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the p-value of claims, of two groups of equal size."""
    return TwoCounts(first, second, of_first).p_value


def limits_that_miss(n: int) -> tuple[float, float]:
    """Return how often the interval of a proportion, and its upper limit, miss the true one at most; exact."""
    grid = np.linspace(0.005, 0.995, 199)
    pmf = stats.binom.pmf(np.arange(n + 1)[:, None], n, grid)
    intervals = [proportion(count, n) for count in range(n + 1)]
    outside = np.array([(grid < of.low - 1e-9) | (grid > of.high + 1e-9) for of in intervals])
    above = np.array([grid > at_most(count, n) + 1e-9 for count in range(n + 1)])
    return float((pmf * outside).sum(0).max()), float((pmf * above).sum(0).max())


# Equality


def shown_equal(world: str, count: int, n: int, truth: Sequence[float]) -> tuple[float, float]:
    """Return how often a page makes any false claim, of equality within 1 or of a difference, and how often it shows
    its first pair to be equal.

    truth: the mean differences of schemes from the baseline, 0 or not within the margin, in standard deviations of the
    differences. The baseline is the scheme whose noise is another one, in worlds that have one.
    """
    drawn = WORLDS[world](np.random.default_rng(14), (count, 1 + len(truth), n))
    drawn /= (drawn[:, :1] - drawn[:, 1:]).std()
    drawn[:, 1:] += np.array(truth)[:, None]
    false, equal = 0, 0
    for baseline, *schemes in drawn.tolist():
        base = dict(enumerate(baseline))
        (page,) = one_family([paired({k: (dict(enumerate(of)), base) for k, of in enumerate(schemes)})])
        said_equal = [not d.significant and d.equal_within(1.0) for d in page.values()]
        false += any(map(_is_false, page.values(), said_equal, truth))
        equal += said_equal[0]
    return false / count, equal / count


def _is_false(d: Difference, said_equal: bool, truth: float) -> bool:
    return (d.significant and (d.mean or 0.0) * truth <= 0) or (said_equal and abs(truth) >= 1)


# Ranks

MEANS: dict[str, Callable[[int], Array]] = {
    "all tie": np.zeros,
    "half of them 1.5 sd worse": lambda k: 1.5 * (np.arange(k) >= k // 2),
    "spaced over 3 sd": lambda k: np.linspace(0, 3, k),
    "one is best by 2 sd": lambda k: 2.0 * (np.arange(k) > 0),
}


def ranks_hold(world: str, means: str, count: int, k: int, n: int) -> float:
    """Return how often the rank intervals of all schemes cover their ranks at once, from Holm's claims on all pairs."""
    mean = MEANS[means](k)
    losses = WORLDS[world](np.random.default_rng(7), (count, k, n)) + mean[:, None]
    first, second = np.triu_indices(k, 1)
    gaps = losses[:, first] - losses[:, second]
    p_values = np.nan_to_num(stats.ttest_1samp(gaps, 0, axis=-1).pvalue, nan=1.0)
    hold = 0
    for sweep_gaps, p in zip(gaps.mean(-1), p_values, strict=True):
        corrected = holm(dict(enumerate(p)))
        claimed = np.array([corrected[pair] < 0.05 for pair in range(len(p))])
        shown = {
            (str(a), str(b)) if gap < 0 else (str(b), str(a))
            for a, b, gap in zip(first[claimed], second[claimed], sweep_gaps[claimed], strict=True)
        }
        intervals = rank_intervals([str(scheme) for scheme in range(k)], shown)
        hold += all(
            low <= 1 + (mean < of_scheme).sum() and (mean <= of_scheme).sum() <= high
            for of_scheme, (low, high) in zip(mean, intervals.values(), strict=True)
        )
    return hold / count


# The tables


def failures_named(noise: Draw, groups: int, seeds: int, count: int, worse: float = 0.0) -> float:
    """Return the share of pages that name a failed run: any, or, where the first run is worse, that one."""
    pages = noise(np.random.default_rng(9), (count, groups, seeds))
    pages[:, 0, 0] += worse
    failed = failed_runs(pages)
    return float((failed[:, 0, 0] if worse else failed.any((1, 2))).mean())


def of_plans(count: int = 4000) -> None:
    table("plan", ["pilot", *WORLDS], ([f"{n} seeds", *(power_of_planned(w, count, n) for w in WORLDS)] for n in SEEDS))


def of_counts(count: int = 4000) -> None:
    tests = fisher, barnard
    table(
        "counts",
        ["seeds", "most false at 5 %", "most false, 7 comparisons", "0.95 against 0.05 found, one of 7", "limits miss"],
        (
            [
                str(n),
                tuple(false_differences(of, n, 0.05) for of in tests),
                tuple(7 * false_differences(of, n, 0.05 / 7) for of in tests),
                tuple(rejections(of, n, 0.95, 0.05, 0.05 / 7) for of in tests),
                limits_that_miss(n),
            ]
            for n in (3, 5, 8, 10)
        ),
    )


def of_equality(count: int = 4000) -> None:
    print(
        "Any false claim on a page, that pairs are equal within 1 sd or differ / the first pair is shown to be equal\n"
    )
    truths = {
        "1 pair, at the margin": (1,),
        "3 pairs, at the margin": (1, 1, 1),
        "3 pairs, one equal, two at the margin": (0, 1, -1),
        "3 pairs, two equal, one at the margin": (0, 0, 1),
        "3 pairs, one equal, two at 2 sd": (0, 2, -2),
        "3 pairs, all equal": (0, 0, 0),
    }

    def cell(world: str, n: int, truth: Sequence[float]) -> tuple[float, ...]:
        found = shown_equal(world, count // 4, n, truth)
        return found if truth[0] == 0 else found[:1]

    table(
        "equality",
        ["truth, seeds", *WORLDS],
        ([f"{name}, {n}", *(cell(w, n, of) for w in WORLDS)] for name, of in truths.items() for n in SEEDS),
    )


def of_ranks(count: int = 4000) -> None:
    table(
        "ranks",
        ["schemes, seeds, truth", *WORLDS],
        (
            [f"{k}, {n}, {means}", *(ranks_hold(w, means, count // 4, k, n) for w in WORLDS)]
            for k, n in ((4, 5), (18, 5), (18, 10))
            for means in ("all tie", "spaced over 3 sd")
        ),
    )


def of_failed(count: int = 4000) -> None:
    noises = {"no effect": NOISES["normal"], ".9": correlated(0.9), ".99": correlated(0.99), "t(3)": NOISES["t(3)"]}
    table(
        "failed",
        ["groups", "seeds", *noises, "20 sd worse"],
        (
            [
                str(k),
                str(n),
                *(f"{100 * failures_named(noise, k, n, count):.2f}" for noise in noises.values()),
                failures_named(NOISES["normal"], k, n, count // 4, worse=20),
            ]
            for k in (2, 3, 8, 27)
            for n in (3, 4, 5, 8, 10, 12)
        ),
    )


TABLES: dict[str, Callable[[], None]] = {
    "plan": of_plans,
    "counts": of_counts,
    "equality": of_equality,
    "ranks": of_ranks,
    "failed": of_failed,
}
