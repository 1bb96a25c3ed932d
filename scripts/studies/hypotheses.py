"""Hypotheses H1 to H6 of the study "scheme or recipe?", tested on its tables alone; decided before the first run.

n is the number of seeds that all runs of a hypothesis have. Nothing is tested before all planned seeds are there,
unless `final` says that no more will come. A hypothesis of several parts holds if all of them do: p is the largest of
theirs (Berger 1982); its opposite, if any part's does: p is the smallest one times their number. Holm's method corrects
the six p-values, and by themselves those of the opposites; below 0.05 is shown. Intervals are simultaneous for the six
(Bonferroni). `exact` is the share of examples with all answers right; 2 x are the lengths of BEYOND. A run that
diverged has solved nothing: its `exact` is 0, its time all steps that it was to have, its loss the highest on the text.

H1  The recipe changes the order: Kendall's tau-b between the schemes' mean `exact` at 2 x, to two digits, by the
    default and by the chosen recipe is below 0.6, in the mean of back, copy and recall; the opposite: above 0.8. Seeds
    are resampled (basic bootstrap, which takes off what resampling itself lowers). Noise alone changes orders, too:
    where those of one recipe by two halves of the seeds have a tau below 0.6 (mean of all halves), nothing is shown.
H2  absolute_offset is not below rope at 2 x, on back and on copy, chosen recipes, by a margin of 0.1; the opposite: it
    is below by more. Sign flips over seeds.
H3  randomized, positions drawn in tests less counted, is at least 0.3 better on recall at 2 x, by its chosen recipe;
    the opposite: by less. Sign flips over seeds.
H4  On copy and recall, chosen recipes, twice the steps: schemes differ in time to solve (log-rank scores, permuted
    within seeds), but two of them differ in P(solved) by less than 0.2 in the mean of all pairs; the opposite: by more.
    Counts of solved seeds have the posterior of Jeffreys' prior; for the opposite it is reflected, as it is too wide.
H5  In the range, on each text, the variance between schemes (of means over rates) is below that between learning rates
    (of means over schemes), in the test losses of the first stage; the opposite: above. Residuals are resampled (wild
    bootstrap).
H6  Control: every scheme has at least 0.95 on majority at 2 x by its chosen recipe; the opposite: one has less. Sign
    flips over seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poslab.comparison.survival import time_to_solve
from poslab.errors import UserError
from poslab.metric import TEST_LOSS
from seedstats.finding import p_text
from seedstats.page.terminal import table as text_table
from seedstats.statistics.families import holm
from seedstats.statistics.intervals import CONFIDENCE, Interval, StudentT
from seedstats.statistics.permutation import sign_flip_test
from seedstats.table import DIVERGED
from studies.tables import BEYOND, CHOOSING, CONFIRMING, COUNTED, LONGER, SCHEMES, TEXTS, TWIN, usual_steps

Array = NDArray[np.float64]
TWO = ("back", "copy")  # tasks of H2
FAMILY = 6
DRAWS = 10_000
SHOWN, NOT_SHOWN, OPPOSITE, NOT_TESTED = "shown", "not shown", "opposite shown", "not tested"


@dataclass(frozen=True)
class Part:
    """Part of a hypothesis: its estimate and interval, and one-sided p-values of the claim and of its opposite."""

    name: str
    estimate: float
    interval: Interval | None
    p: float
    p_opposite: float
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a hypothesis. n: seeds that are there, of `planned`. p, p_opposite: corrected."""

    name: str
    claim: str
    n: int
    planned: int
    parts: Sequence[Part] = ()
    p: float = 1.0
    p_opposite: float = 1.0
    final: bool = False

    @property
    def raw(self) -> tuple[float, float]:
        """Return p-values of the claim and of its opposite, not corrected; 1 where it can't be tested yet."""
        if not self.tested:
            return 1.0, 1.0
        opposite = len(self.parts) * min(part.p_opposite for part in self.parts)
        return max(part.p for part in self.parts), min(1.0, opposite)

    @property
    def tested(self) -> bool:
        return bool(self.parts) and (self.final or self.n >= self.planned)

    @property
    def said(self) -> str:
        if not self.tested:
            return NOT_TESTED
        return SHOWN if self.p < 1 - CONFIDENCE else OPPOSITE if self.p_opposite < 1 - CONFIDENCE else NOT_SHOWN

    @property
    def rows(self) -> list[list[str]]:
        """Return the lines of the hypothesis and of its parts."""
        p, opposite = map(p_text, (self.p, self.p_opposite)) if self.tested else ("", "")
        head = [self.name, self.claim, f"{self.n} of {self.planned}", "", p, opposite, self.said]
        return [head] + [["", f"  {part.name}", "", _figures(part), "", "", part.note] for part in self.parts]


def _figures(part: Part) -> str:
    limits = "" if part.interval is None else f" [{part.interval.low:.3g}, {part.interval.high:.3g}]"
    return f"{part.estimate:.3g}{limits}"


class Cells:
    """Figures of a table by seed. Raises UserError where a run of the second stage is there twice, as with the recipes
    of two choices."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table.assign(length=table["length"].fillna(0).astype(int))
        second = self.table[self.table["recipe"] != "grid"]
        if len(twice := second[second.duplicated(["data", "scheme", "recipe", "metric", "length", "seed"])]):
            raise UserError(f"the table has two runs of {' '.join(twice.iloc[0][['data', 'scheme', 'recipe']])}")
        self._groups = {key: rows for key, rows in self.table.groupby(["data", "scheme", "recipe"])}  # noqa: C416

    def seeds(
        self, cell: tuple[str, str, str], metric: str, length: int = 0, rate: float | None = None, *, lost: float = 0.0
    ) -> dict[int, float]:
        """Return the figure of a cell (data, scheme, recipe) by seed, `lost` of a run that diverged. rate: the learning
        rate; None: the only one."""
        rows = self._groups.get(cell, self.table[:0])
        rows = rows if rate is None else rows[rows["learning_rate"] == rate]
        own = rows[(rows["metric"] == metric) & (rows["length"] == length)]
        found = dict(zip(own["seed"].astype(int), own["value"].astype(float), strict=True))
        return found | dict.fromkeys(rows.loc[rows["status"] == DIVERGED, "seed"].astype(int), lost)

    def exact(self, data: str, scheme: str, recipe: str) -> dict[int, float]:
        return self.seeds((data, scheme, recipe), "exact", BEYOND[data])


def common(cells: Sequence[Mapping[int, float]]) -> list[int]:
    """Return the seeds that all have."""
    return sorted(set.intersection(*(set(of_seeds) for of_seeds in cells))) if cells else []


def verdicts(choosing: pd.DataFrame, confirming: pd.DataFrame, final: bool = False) -> list[Verdict]:
    """Test all hypotheses on the two tables, as one family."""
    first, second = Cells(choosing), Cells(confirming)
    found = [replace(test(first if test is _h5 else second), final=final) for test in (_h1, _h2, _h3, _h4, _h5, _h6)]
    p = holm({one.name: one.raw[0] for one in found}, FAMILY)
    opposite = holm({one.name: one.raw[1] for one in found}, FAMILY)
    return [replace(one, p=p[one.name], p_opposite=opposite[one.name]) for one in found]


def report(found: Sequence[Verdict], confirming: pd.DataFrame) -> str:
    """Return the verdicts as a table, and what the planted duplicate shows."""
    estimate = f"estimate [{100 * _confidence():.1f} %]"
    columns = ["", "hypothesis", "seeds", estimate, "p (Holm)", "of the opposite", "verdict"]
    rows = [row for one in found for row in one.rows]
    return "\n".join([text_table(columns, rows, "<<><>><"), "", *planted(confirming)])


def planted(confirming: pd.DataFrame) -> list[str]:
    """Say by how much rope and its twin differ at 2 x, default recipe: not at all, but for chance."""
    cells, lines = Cells(confirming), []
    for data in BEYOND:
        one, other = (cells.exact(data, scheme, "default") for scheme in ("rope", TWIN))
        if len(seeds := common([one, other])) > 1:
            differences = [one[seed] - other[seed] for seed in seeds]
            p = sign_flip_test(differences)
            lines.append(f"planted duplicate on {data}: {np.mean(differences):+.3f}, n = {len(seeds)}, p = {p_text(p)}")
    return lines


def _confidence() -> float:
    return 1 - (1 - CONFIDENCE) / FAMILY


def _quantiles(draws: Array) -> tuple[float, float]:
    tail = (1 - _confidence()) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _share(holds: NDArray[np.bool_]) -> float:
    """Return the share of draws, never 0 as the data themselves count as one."""
    return float((holds.sum() + 1) / (len(holds) + 1))


# H1


def _h1(cells: Cells) -> Verdict:
    tasks, recipes = ("back", "copy", "recall"), ("default", "chosen")
    figures = {(r, t, s): cells.exact(t, s, r) for r in recipes for t in tasks for s in SCHEMES}
    seeds = common([*figures.values()])
    claim = "the recipe changes the order of schemes: tau < 0.6 (opposite: > 0.8)"
    if len(seeds) < 2:
        return Verdict("H1", claim, len(seeds), len(CONFIRMING))
    shape = (len(recipes), len(tasks), len(SCHEMES), len(seeds))
    exact = np.array([[of[seed] for seed in seeds] for of in figures.values()]).reshape(shape)
    return Verdict("H1", claim, len(seeds), len(CONFIRMING), order_parts(exact))


def order_parts(exact: Array) -> list[Part]:
    """Test H1 on `exact` (2 recipes, tasks, schemes, n seeds)."""
    n = exact.shape[-1]
    tau = float(mean_tau(exact[0].mean(-1), exact[1].mean(-1)))
    drawn = np.random.default_rng(1).integers(n, size=(DRAWS, n))
    means = np.moveaxis(exact[..., drawn].mean(-1), -1, 0)  # (draws, 2, tasks, schemes)
    reflected = 2 * tau - mean_tau(means[:, 0], means[:, 1])
    low, high = _quantiles(reflected)
    halves = [(list(half), [s for s in range(n) if s not in half]) for half in combinations(range(n), n // 2)]
    same = float(np.mean([mean_tau(exact[..., a].mean(-1), exact[..., b].mean(-1)) for a, b in halves]))
    noisy = same < 0.6
    p, opposite = (1.0 if noisy else _share(reflected >= 0.6)), _share(reflected <= 0.8)
    note = f"of the same recipe, by halves of the seeds: {same:.2f}{', so seeds alone change the order' * noisy}"
    return [Part("tau", tau, Interval(max(-1.0, low), min(1.0, high)), p, opposite, note)]


def mean_tau(first: Array, second: Array) -> Array:
    """Return Kendall's tau-b of figures (..., tasks, schemes) to two digits, the mean over tasks. Where all schemes of
    one of the two are equal there is no order to agree with: 0, or 1 where they are in both."""
    places = np.triu_indices(first.shape[-1], 1)
    signs = []
    for figures in (np.round(first, 2), np.round(second, 2)):
        signs.append(np.sign(figures[..., places[0]] - figures[..., places[1]]))
    norms = [np.abs(sign).sum(-1) for sign in signs]
    with np.errstate(invalid="ignore"):
        tau = (signs[0] * signs[1]).sum(-1) / np.sqrt(norms[0] * norms[1])
    return np.asarray(np.where(np.isnan(tau), norms[0] == norms[1], tau).mean(-1))


# H2, H3, H6: margins by seed


def _margins(name: str, figures: Mapping[int, float], limit: float) -> Part:
    """Test whether the mean of figures by seed is above a limit."""
    values = np.array([*figures.values()])
    t = StudentT(float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1, -1.0, 1.0)
    interval = t.interval(float(values.mean()), _confidence()) if t.error else None
    beyond = np.round(values - limit, 9).tolist()
    note = "" if interval else "all seeds agree"
    p, opposite = sign_flip_test(beyond, "greater"), sign_flip_test([-x for x in beyond], "greater")
    return Part(name, float(values.mean()), interval, p, opposite, note)


def _differences(
    name: str, claim: str, figures: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]], limit: float
) -> Verdict:
    """Test whether in all parts the first figures exceed the second by more than a limit."""
    seeds = common([of_seeds for pair in figures.values() for of_seeds in pair])
    if len(seeds) < 2:
        return Verdict(name, claim, len(seeds), len(CONFIRMING))
    parts = [
        _margins(part, {seed: first[seed] - second[seed] for seed in seeds}, limit)
        for part, (first, second) in figures.items()
    ]
    return Verdict(name, claim, len(seeds), len(CONFIRMING), parts)


def _h2(cells: Cells) -> Verdict:
    names = "absolute_offset", "rope"
    figures = {data: (cells.exact(data, names[0], "chosen"), cells.exact(data, names[1], "chosen")) for data in TWO}
    return _differences("H2", "absolute_offset is not below rope by 0.1 at 2 x", figures, -0.1)


def _h3(cells: Cells) -> Verdict:
    pair = cells.exact("recall", "randomized", "chosen"), cells.exact("recall", COUNTED, "chosen")
    return _differences("H3", "randomized: drawn less counted is at least 0.3 at 2 x", {"recall": pair}, 0.3)


def _h6(cells: Cells) -> Verdict:
    figures = {scheme: cells.exact("majority", scheme, "chosen") for scheme in SCHEMES}
    nothing = {scheme: (of_seeds, dict.fromkeys(of_seeds, 0.0)) for scheme, of_seeds in figures.items()}
    return _differences("H6", "control: every scheme at least 0.95 on majority at 2 x", nothing, 0.95)


# H4


def _h4(cells: Cells) -> Verdict:
    claim = "schemes differ in time to solve, but in P(solved) at twice the steps by less than 0.2"
    budget = {data: float(LONGER * usual_steps(data)) for data in ("copy", "recall")}
    where = [(data, scheme) for data in budget for scheme in SCHEMES]
    times = {(d, s): cells.seeds((d, s, "longer"), "steps_to_solve", lost=budget[d]) for d, s in where}
    solved = {(d, s): cells.seeds((d, s, "longer"), "solved") for d, s in where}
    seeds = common([*times.values(), *solved.values()])
    if len(seeds) < 2:
        return Verdict("H4", claim, len(seeds), len(CONFIRMING))
    parts = []
    for data in budget:
        at, done = (
            np.array([[of[data, scheme][seed] for seed in seeds] for scheme in SCHEMES]) for of in (times, solved)
        )
        parts += solving_parts(data, at, done.astype(bool))
    return Verdict("H4", claim, len(seeds), len(CONFIRMING), parts)


def solving_parts(data: str, times: Array, solved: NDArray[np.bool_]) -> list[Part]:
    """Test H4 on one task: times (schemes, n seeds), at which a run solved it or ended, and whether it did."""
    medians = [time_to_solve(at, done).median for at, done in zip(times, solved, strict=True)]
    known = [median for median in medians if math.isfinite(median)]
    ratio = max(known) / min(known) if known else math.nan
    note = f"{len(medians) - len(known)} of {len(medians)} schemes solve it in fewer than half of the seeds"
    in_time = Part(f"{data}: slowest / fastest median", ratio, None, log_rank_of_all(times, solved), 1.0, note)
    count, n = solved.sum(1), times.shape[1]
    estimate = float(_pair_difference(count / n))
    draws = _pair_difference(np.random.default_rng(2).beta(count + 0.5, n - count + 0.5, size=(DRAWS, len(count))))
    reflected = 2 * estimate - draws
    interval = Interval(max(0.0, min(estimate, _quantiles(reflected)[0])), max(estimate, _quantiles(draws)[1]))
    p, opposite = _share(draws >= 0.2), _share(reflected <= 0.2)
    return [in_time, Part(f"{data}: mean difference in P(solved)", estimate, interval, p, opposite)]


def log_rank_of_all(times: Array, solved: NDArray[np.bool_]) -> float:
    """Return the p-value of equal times in all groups, (groups, n seeds) each: scores as in
    `poslab.comparison.survival.log_rank`, labels permuted within seeds."""
    at, done = times.ravel(), solved.ravel()
    at_risk = (at[:, None] <= at).sum(1)
    hazard = ((at <= at[:, None]) & done) @ (1 / at_risk)
    scores = np.round(done - hazard, 12).reshape(times.shape)
    observed = _spread(scores)
    permuted = np.random.default_rng(3).permuted(np.broadcast_to(scores, (DRAWS, *scores.shape)), axis=1)
    return _share(_spread(permuted) >= observed - 1e-9)


def _spread(scores: Array) -> Array:
    return np.asarray((scores.mean(-1) ** 2).sum(-1))


def _pair_difference(chances: Array) -> Array:
    """Return the mean of |difference| over all pairs of chances (..., schemes)."""
    first, second = np.triu_indices(chances.shape[-1], 1)
    return np.asarray(np.abs(chances[..., first] - chances[..., second]).mean(-1))


# H5


def _h5(cells: Cells) -> Verdict:
    claim = "in the range of texts, schemes vary less than learning rates"
    of = cells.table
    rates = sorted(of.loc[of["data"].isin([*TEXTS]), "learning_rate"].unique())
    highest = {data: float(of.loc[(of["data"] == data) & (of["metric"] == TEST_LOSS), "value"].max()) for data in TEXTS}
    losses = {
        (data, scheme, rate): cells.seeds((data, scheme, "grid"), TEST_LOSS, rate=rate, lost=highest[data])
        for data in TEXTS
        for scheme in SCHEMES
        for rate in rates
    }
    seeds = common([*losses.values()])
    if len(seeds) < 2:
        return Verdict("H5", claim, len(seeds), len(CHOOSING))
    shape = (len(TEXTS), len(SCHEMES), len(rates), len(seeds))
    loss = np.array([[of_seeds[seed] for seed in seeds] for of_seeds in losses.values()]).reshape(shape)
    parts = [variance_part(data, of_data) for data, of_data in zip(TEXTS, loss, strict=True)]
    return Verdict("H5", claim, len(seeds), len(CHOOSING), parts)


def variance_part(data: str, loss: Array) -> Part:
    """Test H5 on the losses (schemes, rates, n seeds) of a text. The noise of a cell's mean has the size of its own
    residuals, what a seed adds to all cells left out, and random signs."""
    n = loss.shape[-1]
    cell = loss.mean(-1, keepdims=True)
    residual = loss - cell - (loss - cell).mean((0, 1))
    signs = np.random.default_rng(4).choice([-1.0, 1.0], size=(DRAWS, *loss.shape))
    noise = (signs * residual).mean(-1) * math.sqrt(n / (n - 1))
    ratio = float(_log_ratio(cell[..., 0]))
    reflected = 2 * ratio - _log_ratio(cell[..., 0] + noise)
    low, high = map(math.exp, _quantiles(reflected))
    p, opposite = _share(reflected >= 0), _share(reflected <= 0)
    return Part(f"{data}: variance of schemes / of rates", math.exp(ratio), Interval(low, high), p, opposite)


def _log_ratio(means: Array) -> Array:
    """Return the log ratio of variances between schemes and between rates, of means (..., schemes, rates)."""
    return np.asarray(np.log(means.mean(-1).var(-1, ddof=1) / means.mean(-2).var(-1, ddof=1)))
