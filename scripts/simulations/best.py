"""Simulated pages: how often the set of the best lacks a truly best name, and how many names it has.

The rule of `seedstats.statistics.best` is beside three others, on the same pages:

    before     each name compared with every other one at 5 % / (k - 1), and the page's claims; the rule of version 0.1
    all pairs  Holm's method over all pairs (Holm 1979), a closed test without a baseline
    Hsu        multiple comparisons with the best (Hsu 1981): one variance for all names, of a two-way analysis

`tests/seedstats/test_simulated_best.py` holds the vectorised rule here to that of seedstats, and its figures to limits.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import product

import numpy as np
import pandas as pd
from scipy import special

from seedstats.comparison import Comparison, compare
from seedstats.statistics.counts import TwoCounts
from seedstats.table import checked
from simulations.claims import FOLDER, Cell, cell_text, table
from simulations.sweeps import NOISES, Array, Draw, compared, one_scheme, solved

PAGES = 1000  # of a cell: the standard error of 5 % is 0.7
RULES = "now", "before", "all pairs", "Hsu"
NOISE: dict[str, Draw] = {
    "normal": NOISES["normal"],
    "t(3)": NOISES["t(3)"],
    "one name skewed": one_scheme(NOISES["skewed"], which=0),
    "one name five times as noisy": one_scheme(lambda rng, shape: 5 * rng.normal(size=shape), which=0),
}
# Means of k names, in sd of a run; lower is better. The baseline is the last name.
TRUTHS: dict[str, Callable[[int], Array]] = {
    "all equal": np.zeros,
    "the best half equal, others 1.5 worse": lambda k: 1.5 * (np.arange(k) >= k / 2),
    "all but the baseline equal": lambda k: 2.0 * (np.arange(k) == k - 1),
    "one best by 2": lambda k: 2.0 * (np.arange(k) > 0),
    "the baseline best by 2": lambda k: 2.0 * (np.arange(k) < k - 1),
    "spaced over 3": lambda k: np.linspace(0, 3, k),
}


def holm_along(p_values: Array) -> Array:
    """Return p-values corrected by Holm's method along the last axis."""
    order = p_values.argsort(-1)
    ordered = np.take_along_axis(p_values, order, -1) * (p_values.shape[-1] - np.arange(p_values.shape[-1]))
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, np.maximum.accumulate(ordered, -1), -1)
    return corrected


def pairwise(losses: Array) -> tuple[Array, Array]:
    """Return mean differences and two-sided p-values (pages, k, k) of losses (pages, k, n), row less column."""
    n = losses.shape[-1]
    gaps = losses[:, :, None] - losses[:, None]
    sd, mean = gaps.std(-1, ddof=1), gaps.mean(-1)
    first, second = np.triu_indices(losses.shape[1], 1)
    if len(first) > 2:  # the limit of seedstats
        usual = np.quantile(sd[:, first, second], min(0.5, 2 / n), axis=-1)
        sd = np.maximum(sd, usual[:, None, None] / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(mean) / sd * n**0.5
    return mean, np.nan_to_num(2 * special.stdtr(n - 1, -t), nan=1.0)


def sets(mean: Array, p: Array) -> dict[str, Array]:
    """Return by rule whether each name is in the set (pages, k), from mean differences and p-values (pages, k, k); the
    baseline is the last name, and lower is better."""
    pages, k, _ = p.shape
    worse = np.where(mean > 0, p, 1.0)  # two-sided p of "row is worse than column"
    against_base = holm_along(p[:, :-1, -1])
    claimed = np.concatenate([(against_base < 0.05) & (mean[:, :-1, -1] > 0), np.zeros((pages, 1), bool)], axis=1)
    claimed[:, -1] = ((against_base < 0.05) & (mean[:, :-1, -1] < 0)).any(1)
    # Step 2, where the baseline is left out. As in seedstats, all are compared with the ten of the best means.
    found = {"now": claimed.copy()}
    if k > 2:
        others = worse[:, :-1, :-1].copy()
        behind = mean.mean(2)[:, :-1].argsort(1).argsort(1) >= 10
        others[np.broadcast_to(behind[:, None], others.shape)] = 1.0
        names = holm_along((k - 2) * others.min(2) / 2)
        found["now"][:, :-1] |= (names < 0.025) & claimed[:, -1:]
    found["before"] = ((k - 1) * worse.min(2) < 0.05) | claimed
    first, second = np.triu_indices(k, 1)
    pairs = (holm_along(p[:, first, second]) < 0.05)[:, :, None]
    loser = np.where(mean[:, first, second] > 0, first, second)
    found["all pairs"] = (pairs & (loser[:, :, None] == np.arange(k))).any(1)
    return {rule: ~left_out for rule, left_out in found.items()}


@cache
def _critical(k: int, freedom: int) -> float:
    """Return Dunnett's one-sided critical value of k - 1 comparisons with one, by 200,000 draws."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(200_000, k))
    chi = np.sqrt(rng.chisquare(freedom, 200_000) / freedom)
    return float(np.quantile((draws[:, 1:] - draws[:, :1]).max(1) / 2**0.5 / chi, 0.95))


def hsu(losses: Array) -> Array:
    """Return Hsu's set (pages, k) of losses (pages, k, n): within `critical` standard errors of the best other one."""
    _, k, n = losses.shape
    rest = losses - losses.mean(1, keepdims=True) - losses.mean(2, keepdims=True) + losses.mean((1, 2), keepdims=True)
    freedom = (k - 1) * (n - 1)
    error = np.sqrt(np.square(rest).sum((1, 2)) / freedom * 2 / n)
    means = losses.mean(2)
    lowest = np.sort(means, axis=1)[:, :2]
    others = np.where(means == lowest[:, :1], lowest[:, 1:], lowest[:, :1])
    return np.asarray(means - others < (_critical(k, freedom) * error)[:, None])


def of_means(noise: Draw, truth: Array, seeds: int, count: int) -> dict[str, tuple[float, float]]:
    """Return by rule the share of pages whose set lacks no truly best name, and the mean share of the other names that
    it leaves out."""
    rng, k = np.random.default_rng(5), len(truth)
    kept: dict[str, list[Array]] = {}
    part = max(1, 2_000_000 // (k * k * seeds))
    for start in range(0, count, part):
        pages = min(part, count - start)
        of_seeds = rng.normal(size=(pages, 1, seeds))
        losses = 4 + of_seeds + noise(rng, (pages, k, seeds)) + truth[:, None]
        for rule, members in (sets(*pairwise(losses)) | {"Hsu": hsu(losses)}).items():
            kept.setdefault(rule, []).append(members)
    return {rule: _figures(np.concatenate(of), truth == truth.min()) for rule, of in kept.items()}


def _figures(members: Array, best: Array) -> tuple[float, float]:
    found = float((~members[:, ~best]).mean()) if not best.all() else math.nan
    return float(members[:, best].all(1).mean()), found


def of_shares(chances: Sequence[float], seeds: int, count: int) -> dict[str, tuple[float, float]]:
    """Return `of_means` of names that solve a task or not, with these chances; the baseline is the last one."""
    successes = solved(np.random.default_rng(6), chances, count, seeds).sum(-1).astype(int)
    p_of = np.array([[TwoCounts(a, b, seeds).p_value for b in range(seeds + 1)] for a in range(seeds + 1)])
    p = p_of[successes[:, :, None], successes[:, None]]
    mean = (successes[:, None] - successes[:, :, None]) / seeds  # fewer failures are better
    best = np.asarray(chances) == max(chances)
    return {rule: _figures(members, best) for rule, members in sets(mean, p).items()}


def whole_page(losses: Array, settings: Sequence[int], missing: float = 0.0, seed: int = 0) -> Comparison:
    """Return what `seedstats.compare` finds for losses (cells, seeds), of names n0, n1, ... with so many settings each.
    missing: the share of rows that are dropped at random."""
    cells = [(f"n{name}", str(setting)) for name, number in enumerate(settings) for setting in range(number)]
    dropped = np.random.default_rng(seed).random(losses.shape) < missing
    rows = [
        (name, setting, number, "" if gone else value)
        for (name, setting), of_cell, of_dropped in zip(cells, losses.tolist(), dropped.tolist(), strict=True)
        for number, (value, gone) in enumerate(zip(of_cell, of_dropped, strict=True))
    ]
    table = checked(pd.DataFrame(rows, columns=["name", "setting", "seed", "value"]))
    return compare(table, better="lower")["results"]


# Tables

Row = tuple[Sequence[str], Callable[[], Sequence[Cell]]]  # its first cells, and what computes the others


def resumable(name: str, head: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a table as `claims.table` does. Rows that an earlier, unfinished call has computed are not computed again:
    they stand in NAME.part.csv."""
    part = FOLDER / f"{name}.part.csv"
    done = list(csv.reader(part.open(encoding="utf-8"))) if part.exists() else []

    def completed() -> Iterator[Sequence[Cell]]:
        for labels, compute in rows:
            known = next((row for row in done if row[: len(labels)] == [*labels]), None)
            if known is None:
                known = [*labels, *map(cell_text, compute())]
                with part.open("a", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(known)
            yield known

    table(name, head, completed())
    part.unlink(missing_ok=True)


def of_best(count: int = PAGES) -> None:
    def of_rules(compute: Callable[[], dict[str, tuple[float, float]]], rules: Sequence[str]) -> list[Cell]:
        shares = compute()
        return [shares[rule][:1] if math.isnan(shares[rule][1]) else shares[rule] for rule in rules]

    def rows() -> Iterator[Row]:
        cells = product((2, 3, 6, 12, 30), (3, 5, 10, 30))
        for (k, n), (truth, means), (noise, draw) in product(cells, TRUTHS.items(), NOISE.items()):
            compute = partial(of_means, draw, means(k), n, count)
            yield (str(k), str(n), truth, noise), partial(of_rules, compute, RULES)

    resumable("best", ["names", "seeds", "truth", "noise", *RULES], rows())

    def of_tasks() -> Iterator[Row]:
        for k, n in product((2, 3, 6, 12, 30), (3, 5, 10, 30)):
            chances = {
                "all .5": [0.5] * k,
                "all .95": [0.95] * k,
                "half .9, others .1": [0.9] * ((k + 1) // 2) + [0.1] * (k // 2),
                "one .95, others .05": [0.95] + [0.05] * (k - 1),
            }
            for truth, of_names in chances.items():
                compute = partial(of_shares, of_names, n, count)
                yield (str(k), str(n), truth), partial(of_rules, compute, RULES[:3])

    resumable("best_tasks", ["names", "seeds", "solved in", *RULES[:3]], of_tasks())


def of_best_pages(count: int = PAGES) -> None:
    """Grids and missing seeds, through `seedstats.compare`."""

    def kept(settings: Sequence[int], n: int, missing: float) -> list[Cell]:
        drawn = 4 + np.random.default_rng(7).normal(size=(count, sum(settings), n))
        found = [whole_page(page, settings, missing, number).best for number, page in enumerate(drawn)]
        answered = [best for best in found if best is not None]
        return [sum(len(best.members) == len(settings) for best in answered) / len(answered), len(answered) / count]

    cells: tuple[tuple[str, Sequence[int], int, float], ...] = (
        ("3 names with 3 settings each", (3, 3, 3), 5, 0.0),
        ("3 names with 1, 3 and 10 settings", (1, 3, 10), 5, 0.0),
        ("6 names with 2 settings each", (2,) * 6, 10, 0.0),
        ("6 names, 10 % of rows missing", (1,) * 6, 10, 0.1),
    )
    head = ["all names and settings equal", "seeds", "no name is left out, % of pages", "answered, %"]
    rows = (((name, str(n)), partial(kept, settings, n, missing)) for name, settings, n, missing in cells)
    resumable("best_pages", head, rows)


def of_missing(count: int = PAGES) -> None:
    """Claims where rows are missing at random, the second of the names differing from the first by `effect` sd."""

    def shares(names: int, n: int, missing: float) -> list[Cell]:
        rng = np.random.default_rng(8)
        found: list[Cell] = []
        for effect in (0.0, 2.0):
            claimed = []
            for _ in range(count):
                losses = 4 + rng.normal(size=(names, n))
                losses[1] -= effect
                there = rng.random(losses.shape) >= missing
                groups = [
                    {seed: float(of[seed]) for seed in range(n) if of_seeds[seed]}
                    for of, of_seeds in zip(losses, there, strict=True)
                ]
                differences = compared(groups, range(n))
                claimed.append(differences[0].significant if effect else any(d.significant for d in differences))
            found.append(float(np.mean(claimed)))
        return found

    cells = product((2, 4, 6), (5, 10), (0.0, 0.1, 0.3))
    head = ["names", "seeds", "rows missing, %", "any false claim, %", "a difference of 2 sd is shown, %"]
    rows = (((str(k), str(n), f"{100 * share:.0f}"), partial(shares, k, n, share)) for k, n, share in cells)
    resumable("missing", head, rows)


TABLES: dict[str, Callable[[], None]] = {"best": of_best, "best_pages": of_best_pages, "missing": of_missing}
