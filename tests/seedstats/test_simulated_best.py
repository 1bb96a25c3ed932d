"""The set of the best lacks a truly best name as rarely as promised: figures of `scripts/simulate.py best`."""

import numpy as np
import pytest

from seedstats.statistics.best import best_set
from seedstats.statistics.best import shown as claims_of
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import paired
from simulations.best import NOISE, TRUTHS, of_means, of_shares, pairwise, sets, whole_page

COUNT = 400
LEAST = 0.95 - 3 * (0.05 * 0.95 / COUNT) ** 0.5  # three standard errors of a share


@pytest.mark.parametrize(("k", "n"), [(2, 5), (3, 10), (6, 10), (12, 30)])
def test_what_is_simulated_is_the_rule(k: int, n: int) -> None:
    losses = 4 + np.random.default_rng(0).normal(size=(40, k, n)) + np.linspace(0, 2, k)[::-1, None]
    losses[:20, -1] += 3.0  # else the baseline, which is the last, is the best
    found = sets(*pairwise(losses))["now"]
    for page, members in zip(losses.tolist(), found, strict=True):
        names = {str(name): dict(enumerate(of)) for name, of in enumerate(page)}
        base = str(k - 1)
        (tested,) = one_family(
            [paired({(name, base): (of, names[base]) for name, of in names.items() if name != base})]
        )
        best = best_set(names, claims_of(tested), base)
        assert {*best.members} == {str(name) for name in np.flatnonzero(members)}
        assert {*best.members, *best.left_out} == {*names}
    assert 0 < found.mean() < 1


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("k", "n"), [(2, 3), (3, 10), (12, 10), (6, 30)])
def test_no_truly_best_name_is_left_out(noise: str, truth: str, k: int, n: int) -> None:
    """Counted by pages: one name that is left out is enough."""
    assert of_means(NOISE[noise], TRUTHS[truth](k), n, COUNT)["now"][0] >= LEAST


def test_the_rule_of_before_left_out_too_many() -> None:
    assert of_means(NOISE["normal"], TRUTHS["all equal"](12), 10, COUNT)["before"][0] < 0.88


@pytest.mark.parametrize(("k", "n"), [(2, 5), (6, 10), (12, 30)])
@pytest.mark.parametrize("chance", [0.5, 0.95])
def test_no_truly_best_solver_is_left_out(k: int, n: int, chance: float) -> None:
    assert of_shares([chance] * k, n, COUNT)["now"][0] >= LEAST


def test_what_is_not_the_best_is_found() -> None:
    assert of_means(NOISE["normal"], TRUTHS["the baseline best by 2"](6), 10, COUNT)["now"][1] > 0.9
    assert of_means(NOISE["normal"], TRUTHS["one best by 2"](6), 10, COUNT)["now"][1] > 0.6
    assert of_shares([0.95] + [0.05] * 5, 10, COUNT)["now"][1] > 0.9


@pytest.mark.parametrize(("settings", "missing"), [((3, 3, 3), 0.0), ((1,) * 6, 0.1)])
def test_grids_and_missing_seeds(settings: tuple[int, ...], missing: float) -> None:
    drawn = 4 + np.random.default_rng(7).normal(size=(100, sum(settings), 10))
    found = [whole_page(page, settings, missing, number).best for number, page in enumerate(drawn)]
    assert sum(len(best.members) == len(settings) for best in found) >= 95 - 3 * (100 * 0.05 * 0.95) ** 0.5
