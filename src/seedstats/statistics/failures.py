"""Runs that failed: so much worse than the others of their group that its mean describes none of them.

A run failed if it is worse than its group's median by more than LIMIT times the usual spread, the median of all
distances from the groups' medians, and than LIMIT times that of its own group. Both are scaled to the standard
deviation of normal values (Hampel 1974, "The influence curve and its role in robust estimation", Journal of the
American Statistical Association 69). Of normal values none is so far off, of t(3) one in 1,400.
"""

from collections.abc import Mapping

import numpy as np

from seedstats.statistics.paired import Figures

LIMIT = 10
_FEWEST_RUNS, _FEWEST_OF_GROUP = 8, 5  # for a spread of all groups, and for one of a group
_TO_SD = 1.4826  # of normal values


def failed_seeds(figures: Mapping[str, Figures], sign: int) -> dict[str, list[int]]:
    """Return the seeds that failed, by the name of their group, where some did. sign: 1 where lower is better, -1 where
    higher is."""
    medians = {name: float(np.median(list(of.values()))) for name, of in figures.items()}
    distances = {name: [abs(x - medians[name]) for x in of.values()] for name, of in figures.items()}
    all_distances = [distance for of in distances.values() for distance in of]
    if len(all_distances) < _FEWEST_RUNS:
        return {}
    failed: dict[str, list[int]] = {}
    for name, of in figures.items():
        spread = float(np.median(all_distances))
        if len(of) >= _FEWEST_OF_GROUP:
            spread = max(spread, float(np.median(distances[name])))
        seeds = [seed for seed, x in of.items() if sign * (x - medians[name]) > LIMIT * _TO_SD * spread > 0]
        if seeds:
            failed[name] = seeds
    return failed
