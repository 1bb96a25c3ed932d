"""Runs that failed: so much worse than the others of their group that its mean describes none of them.

A run failed if it is worse than its group's median by more than LIMIT standard deviations of a run, both as it is and
without what its seed does to all groups. The standard deviation is the upper quartile of all distances from the
groups' medians, or of those in its own group if that is larger, scaled to normal values: a quarter of the runs may fail
and don't widen it (Hampel 1974, "The influence curve and its role in robust estimation", Journal of the American
Statistical Association 69). Where few runs tell it, the limit is that quantile of a t distribution which one page in
2,000 would exceed; a quartile counts as a standard deviation of fewer degrees of freedom.

Of simulated pages of normal values, 2 to 27 groups of 3 to 12 seeds whose runs correlate by 0 to .99, at most 0.2 %
name a run; of values from t(3), which has long tails, up to 13 % (data/studies/simulated_claims/failed.csv).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from seedstats.statistics.paired import Figures

LIMIT = 10
_FALSE = 1 / 2000  # share of pages
_FEWEST_OF_GROUP = 5  # runs, for a spread of a group of its own
_FEWEST_OF_SEED = 3  # groups that share a seed, to tell its effect from that of a run
_EFFICIENCY = 0.65  # degrees of freedom of a quartile as a share of those of an sd
_TO_SD = 1 / 1.1503  # upper quartile of absolute normal values to their standard deviation


def failed_seeds(figures: Mapping[str, Figures], sign: int, effect: float = 0.0) -> dict[str, list[int]]:
    """Return the seeds that failed, by the name of their group, where some did. sign: 1 where lower is better, -1 where
    higher is. effect: the difference that matters; a run that is no more than this worse didn't fail."""
    names = [name for name, of in figures.items() if of]
    seeds = sorted({seed for name in names for seed in figures[name]})
    if not names:
        return {}
    values = np.array([[sign * figures[name].get(seed, np.nan) for seed in seeds] for name in names])
    failed = failed_runs(values, effect)
    return {names[row]: [seeds[seed] for seed in np.flatnonzero(failed[row])] for row in np.flatnonzero(failed.any(1))}


def failed_runs(values: NDArray[Any], effect: float = 0.0) -> NDArray[Any]:
    """Return which runs of pages (..., groups, seeds) failed; lower values are better, NaN where there is no run. All
    pages have the same runs."""
    there = np.isfinite(values).reshape(-1, *values.shape[-2:])[0]
    groups, seeds = there.shape
    shared = there.sum(0) >= _FEWEST_OF_SEED
    if not shared[there.any(0)].all():  # distances with and without the effect of a seed have no common spread
        shared[:] = False
    freedom = min(there.sum() - groups, seeds - 1)
    if shared.any():
        freedom = there.sum() - groups - shared.sum() + 1
    if freedom < 1:
        return np.zeros(values.shape, bool)
    distances = values - _median(values, -1)
    unseeded = values - np.where(shared, _median(distances, -2), 0.0)
    unseeded -= _median(unseeded, -1)
    quantile: Callable[..., Any] = np.quantile if there.all() else np.nanquantile  # which goes page by page
    spreads = _TO_SD * quantile(np.abs(unseeded), 0.75, axis=(-2, -1), keepdims=True)
    own_spreads = _TO_SD * quantile(np.abs(unseeded), 0.75, axis=-1, keepdims=True)
    has_own = there.sum(1, keepdims=True) >= _FEWEST_OF_GROUP
    spreads = np.where(has_own, np.maximum(spreads, own_spreads), spreads)
    limit = max(LIMIT, float(special.stdtrit(_EFFICIENCY * freedom, 1 - _FALSE / there.sum())))
    worse_by = np.fmin(distances, unseeded)
    failed: NDArray[Any] = (worse_by > np.maximum(limit * spreads, effect)) & (spreads > 0)
    return failed


def _median(values: NDArray[Any], axis: int) -> NDArray[Any]:
    median: NDArray[Any] = np.nanmedian(values, axis, keepdims=True)
    return median
