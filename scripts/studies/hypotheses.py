"""Hypotheses H1 to H6 of the study "scheme or recipe?", tested on its tables alone; decided before the first run.

A hypothesis of several parts holds if all of them do: p is the largest of theirs (Berger 1982); its opposite, if any
part's does: p is the smallest one times their number. Holm's method corrects the six p-values, and by themselves those
of the opposites; below 0.05 is shown. Intervals are simultaneous for the six (Bonferroni). A run that diverged would
have solved nothing, and have the highest loss of its text; none did, so there is no code for it.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poslab.metric import TEST_LOSS
from seedstats.statistics.families import holm
from seedstats.statistics.intervals import CONFIDENCE, StudentT
from seedstats.statistics.permutation import sign_flip_test
from studies.tables import COUNTED, LONGER, SCHEMES, TEXTS, Array, values

EACH = 1 - (1 - CONFIDENCE) / 6  # confidence of one of the six intervals
LIMITS = (1 - EACH) / 2, (1 + EACH) / 2
DRAWS, AT_ONCE = 10_000, 1_000


class Part(NamedTuple):
    """Part of a hypothesis: an estimate from n seeds, and one-sided p-values of the claim and of its opposite."""

    part: str
    n: int
    estimate: float
    low: float
    high: float
    p: float
    opposite: float


def verdicts(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Test all hypotheses on the tables of the two stages; return their parts, and the verdicts on them as a family."""
    found = {
        "H1": [order_part(orders(second))],
        "H2": [margin_part(second, data, ("absolute_offset", "rope"), -0.1) for data in ("back", "copy")],
        "H3": [margin_part(second, "recall", ("randomized", COUNTED), 0.3)],
        "H4": [part for data in LONGER for part in solving_parts(second, data)],
        "H5": [variance_part(data, losses(first, data)) for data in TEXTS],
        "H6": [margin_part(second, "majority", [scheme], 0.95) for scheme in SCHEMES],
    }
    parts = pd.concat({name: pd.DataFrame(of) for name, of in found.items()}, names=["hypothesis"]).droplevel(1)
    of_each = parts.groupby("hypothesis")
    p, opposite = of_each["p"].max(), (of_each["opposite"].min() * of_each.size()).clip(upper=1)
    family = pd.DataFrame({"p": holm(p.to_dict()), "opposite": holm(opposite.to_dict())}).sort_index()
    shown = [family[side] < 1 - CONFIDENCE for side in ("p", "opposite")]
    return parts, family.assign(verdict=np.select(shown, ["shown", "opposite"], "neither"))


def share(holds: NDArray[np.bool_]) -> float:
    """Return the share of draws, never 0 as the data themselves count as one."""
    return float((holds.sum() + 1) / (len(holds) + 1))


def orders(table: pd.DataFrame) -> Array:
    """Return the shares of right examples (2 recipes, tasks, schemes, n seeds)."""
    return np.array([[values(table, of, recipe) for of in ("back", *LONGER)] for recipe in ("default", "chosen")])


def order_part(both: Array, draws: int = DRAWS) -> Part:
    """Test H1 on `orders`: the recipe changes the order, tau < 0.6; the opposite: tau > 0.8.

    Seeds are resampled (basic bootstrap, which takes off by how much resampling itself moves tau). Noise alone changes
    orders, too: where those of one recipe by two halves of the seeds have a tau below 0.6 (mean of all halves), nothing
    is shown.
    """
    tau, n = float(mean_tau(*both.mean(-1))), both.shape[-1]
    rng = np.random.default_rng(1)
    drawn = (rng.integers(n, size=(AT_ONCE, n)) for _ in range(draws // AT_ONCE))
    resampled = [mean_tau(*np.moveaxis(both[..., seeds].mean(-1), -1, 1)) for seeds in drawn]
    reflected = 2 * tau - np.concatenate(resampled)
    halves = [[half, [seed for seed in range(n) if seed not in half]] for half in combinations(range(n), n // 2)]
    same = np.mean([mean_tau(*(both[..., half].mean(-1) for half in two)) for two in halves])
    p = 1.0 if same < 0.6 else share(reflected >= 0.6)
    low, high = np.quantile(reflected, LIMITS)
    return Part("Kendall's tau", n, tau, low, high, p, share(reflected <= 0.8))


def mean_tau(first: Array, second: Array) -> Array:
    """Return Kendall's tau-b of figures (..., tasks, schemes) to two digits, the mean over tasks. Where all schemes of
    one of the two are equal there is no order to agree with: 0, or 1 where they are in both."""
    one, other = np.triu_indices(first.shape[-1], 1)
    signs = [np.sign(figure[..., one] - figure[..., other]) for figure in (np.round(first, 2), np.round(second, 2))]
    norms = [np.abs(sign).sum(-1) for sign in signs]
    with np.errstate(invalid="ignore"):
        tau = (signs[0] * signs[1]).sum(-1) / np.sqrt(norms[0] * norms[1])
    return np.asarray(np.where(np.isnan(tau), norms[0] == norms[1], tau).mean(-1))


def margin_part(table: pd.DataFrame, data: str, schemes: Sequence[str], limit: float) -> Part:
    """Test H2, H3 or H6: the mean of a scheme on a task, less that of a second one if there is one, is above a limit;
    the opposite: below. Signs are flipped over seeds."""
    own, *others = values(table, data, "chosen", schemes=schemes)
    figures = own - sum(others)
    mean, n, sd = float(figures.mean()), len(figures), float(figures.std(ddof=1))
    interval = StudentT(sd / math.sqrt(n), n - 1, -1.0, 1.0).interval(mean, EACH)
    beyond = np.round(figures - limit, 9)  # as rounding errors would break ties
    p, opposite = (sign_flip_test(side.tolist(), "greater") for side in (beyond, -beyond))
    return Part(f"{' - '.join(schemes)} on {data}", n, mean, *(interval if sd else (math.nan, math.nan)), p, opposite)


def solving_parts(table: pd.DataFrame, data: str) -> list[Part]:
    """Test H4 on a task, with twice the steps: schemes differ in time to solve, but two of them differ in P(solved) by
    less than 0.2 in the mean of all pairs; the opposite: by more.

    Counts of solved seeds have the posterior of Jeffreys' prior; for the opposite it is reflected, as it is too wide.
    """
    times, solved = (values(table, data, "longer", metric) for metric in ("steps_to_solve", "solved"))
    n, count = times.shape[1], solved.sum(1)
    estimate = float(pair_difference(count / n))
    draws = pair_difference(np.random.default_rng(2).beta(count + 0.5, n - count + 0.5, size=(DRAWS, len(count))))
    reflected = 2 * estimate - draws
    limits = max(0.0, min(estimate, np.quantile(reflected, LIMITS)[0])), max(estimate, np.quantile(draws, LIMITS)[1])
    p_times = log_rank_of_all(times, solved.astype(bool))
    return [
        Part(f"time to solve {data}", n, math.nan, math.nan, math.nan, p_times, 1.0),
        Part(f"P(solved) on {data}", n, estimate, *limits, share(draws >= 0.2), share(reflected <= 0.2)),
    ]


def log_rank_of_all(times: Array, solved: NDArray[np.bool_]) -> float:
    """Return the p-value of equal times in all groups, (groups, n seeds) each: log-rank scores (Peto & Peto 1972), 1 if
    solved less the cumulative hazard up to its time, with labels permuted within seeds."""
    at, done = times.ravel(), solved.ravel()
    hazard = ((at <= at[:, None]) & done) @ (1 / (at[:, None] <= at).sum(1))
    scores = np.round(done - hazard, 12).reshape(times.shape)
    permuted = np.random.default_rng(3).permuted(np.broadcast_to(scores, (DRAWS, *scores.shape)), axis=1)
    spread, of_permuted = ((of.mean(-1) ** 2).sum(-1) for of in (scores, permuted))
    return share(of_permuted >= spread - 1e-9)


def pair_difference(chances: Array) -> Array:
    """Return the mean of |difference| over all pairs of chances (..., schemes)."""
    first, second = np.triu_indices(chances.shape[-1], 1)
    return np.asarray(np.abs(chances[..., first] - chances[..., second]).mean(-1))


def losses(table: pd.DataFrame, data: str, schemes: Sequence[str] = SCHEMES) -> Array:
    """Return the test losses of a text in the first stage (schemes, rates, n seeds)."""
    by_rate = table[table["data"] == data].groupby("learning_rate")
    return np.stack([values(of_rate, data, "grid", TEST_LOSS, schemes=schemes) for _, of_rate in by_rate], 1)


def variance_part(data: str, loss: Array) -> Part:
    """Test H5 on the losses of a text: the variance between schemes (of means over rates) is below that between
    learning rates (of means over schemes); the opposite: above.

    The noise of a cell's mean has the size of its own residuals, what a seed adds to all cells left out, and random
    signs (wild bootstrap).
    """
    n = loss.shape[-1]
    cell = loss.mean(-1, keepdims=True)
    residual = loss - cell - (loss - cell).mean((0, 1))
    signs = np.random.default_rng(4).choice([-1.0, 1.0], size=(DRAWS, *loss.shape))
    noise = (signs * residual).mean(-1) * math.sqrt(n / (n - 1))
    ratio = log_ratio(cell[..., 0])
    reflected = 2 * ratio - log_ratio(cell[..., 0] + noise)
    estimate, low, high = map(math.exp, (ratio, *np.quantile(reflected, LIMITS)))
    return Part(f"schemes / rates on {data}", n, estimate, low, high, share(reflected >= 0), share(reflected <= 0))


def log_ratio(means: Array) -> Array:
    """Return the log ratio of variances between schemes and between rates, of means (..., schemes, rates)."""
    return np.asarray(np.log(means.mean(-1).var(-1, ddof=1) / means.mean(-2).var(-1, ddof=1)))
