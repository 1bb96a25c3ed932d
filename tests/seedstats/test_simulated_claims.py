"""Claims on simulated sweeps are false as rarely as promised, and true as often: figures of `scripts/simulate.py`."""

import numpy as np
import pytest

from seedstats.statistics.families import one_family
from seedstats.statistics.paired import Difference, paired
from simulations.sweeps import (
    EXCEPTIONS,
    NOISES,
    WORLDS,
    Found,
    Size,
    compared,
    false_after_plan,
    false_among_claims,
    false_at_looks,
    false_claims_of_graded,
    false_claims_of_grids,
    false_claims_of_survivors,
    false_interactions,
    find,
    find_solved,
    half_differ,
    power,
    rates,
    rates_of_solved,
    shown,
    solved,
)

COUNT = 2000
LIMIT = 0.05 + 3 * (0.05 * 0.95 / COUNT) ** 0.5  # three standard errors of a share of 5 %


def assert_same(simulated: Found, page: int, tested: list[Difference]) -> None:
    assert [d.significant * np.sign(d.mean) for d in tested] == simulated.signs[page].tolist()
    for test, d in enumerate(tested):
        ends = d.interval or (simulated.low[page, test], simulated.high[page, test])
        assert ends == pytest.approx((simulated.low[page, test], simulated.high[page, test]))


@pytest.mark.parametrize("size", [Size(5, 4), Size(3, 4, sections=2), Size(4, 3, sections=2, all_pairs=True)], ids=str)
@pytest.mark.parametrize("world", ["normal", "bimodal, modes 4 sd apart"])
@pytest.mark.parametrize("looks", [1, 3])
def test_what_is_simulated_is_what_is_claimed(size: Size, world: str, looks: int) -> None:
    effects = np.array([0.0, 0.0, 9.0, -20.0])[: size.schemes, None]
    losses = 4 + effects + WORLDS[world](np.random.default_rng(0), (60, size.sections, size.schemes, size.seeds))
    found = find(losses, size.pairs, looks=looks)
    for number, page in enumerate(losses):
        groups = [[dict(enumerate(of)) for of in section.tolist()] for section in page]
        sections = [paired({(a, b): (section[b], section[a]) for a, b in size.pairs}) for section in groups]
        assert_same(found, number, [d for section in one_family(sections, looks=looks) for d in section.values()])
    assert 0 < (found.signs != 0).mean() < 1


def test_solved_tasks_as_simulated_are_what_is_claimed() -> None:
    values = solved(np.random.default_rng(0), [0.1, 0.1, 0.9, 0.5], 60, 7)
    found = find_solved(values)
    for number, sweep in enumerate(values.tolist()):
        tested = compared([dict(enumerate(of)) for of in sweep], proportion=True)
        assert_same(found, number, tested)
    assert 0 < (found.signs != 0).mean() < 1


@pytest.mark.parametrize("size", [Size(3), Size(5, 4, 4), Size(10, 4), Size(5, 8, all_pairs=True)], ids=str)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("differ", [False, True], ids=["alike", "half differ"])
def test_any_false_claim_and_any_interval_that_misses(world: str, size: Size, differ: bool) -> None:
    false, missing = rates(WORLDS[world], size, COUNT, half_differ(size.schemes) if differ else ())
    assert false <= LIMIT
    assert missing <= LIMIT


def test_a_bad_run_that_was_not_drawn_is_the_exception() -> None:
    """No test knows of it: the page says how often seeds may fail that did not."""
    assert rates(EXCEPTIONS["one scheme has one bad run in ten"], Size(10), COUNT)[0] > 0.1


def test_an_sd_that_is_not_limited_would_mislead() -> None:
    size = Size(3, sections=4)
    assert rates(WORLDS["bimodal, modes 10 sd apart"], size, COUNT, limited=False)[0] > 0.1


def test_claims_from_two_seeds_would_mislead() -> None:
    assert false_among_claims(2, 0.5, 4 * COUNT) > 0.25
    assert false_among_claims(5, 1.0, 4 * COUNT) < 0.1


def test_differences_are_found() -> None:
    assert shown(WORLDS["normal"], Size(3), COUNT, 8.0) > 0.7
    assert shown(WORLDS["normal"], Size(5, 18), COUNT, 4.0) > 0.5


# Looks, with seeds added in between


def test_planned_looks() -> None:
    for seeds in ((3, 10), (3, 5, 10)):
        assert false_at_looks(NOISES["normal"], seeds, [len(seeds)] * len(seeds), COUNT) <= LIMIT
    assert false_at_looks(NOISES["normal"], (3, 5, 10), [1] * 3, COUNT) > 0.06


def test_unplanned_looks_are_little_worse() -> None:
    """Nothing takes back that the first page was not corrected for them."""
    assert false_after_plan(NOISES["normal"], 3, 2, COUNT // 2) <= LIMIT + 0.01
    seeds = range(5, 21)
    assert false_at_looks(NOISES["normal"], seeds, range(1, 17), COUNT) <= LIMIT + 0.02
    assert false_at_looks(NOISES["normal"], seeds, [1] * 16, COUNT) > 0.15


# Tasks that are solved or not


@pytest.mark.parametrize("chance", [[0.05], [0.5], [0.9], [0.05, 0.95], [0.3, 0.7]], ids=str)
@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("r", [0.0, 0.5])
def test_claims_of_solved_tasks(chance: list[float], seeds: int, r: float) -> None:
    """Partial nulls, too: of eight schemes every other one solves the task as often."""
    false, missing, _ = rates_of_solved((chance * 8)[:8], seeds, COUNT, r)
    assert false <= LIMIT
    assert missing <= LIMIT


@pytest.mark.parametrize(("comparisons", "seeds", "least"), [(7, 8, 0.8), (17, 8, 0.8), (1, 5, 0.8), (7, 5, 0.5)])
def test_a_scheme_that_solves_the_task_is_found(comparisons: int, seeds: int, least: float) -> None:
    """Flipped signs under Holm's correction found none of these."""
    assert rates_of_solved([0.05] * comparisons + [0.95], seeds, COUNT)[2] >= least


def test_claims_of_tasks_that_are_partly_solved() -> None:
    assert false_claims_of_graded(4, 6, 150) <= 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5


# Stated power, and runs that are gone


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ratio", [0.8, 1.5])
def test_power_is_as_stated(noise: str, ratio: float) -> None:
    """At least 80 % where noise is normal or has long tails; with few seeds that are skewed a little less."""
    assert power(NOISES[noise], 4000, ratio) > 0.75


@pytest.mark.parametrize("noise", NOISES)
def test_survivors_are_not_taken_for_all(noise: str) -> None:
    """A scheme of which the bad runs diverge is not called better for the good ones."""
    count = 200
    assert false_claims_of_survivors(NOISES[noise], count) <= 0.05 + 3 * (0.05 * 0.95 / count) ** 0.5


def test_survivors_alone_would_mislead() -> None:
    assert false_claims_of_survivors(NOISES["normal"], 150, counted=False) > 0.06


# Interactions, and names at their best settings


@pytest.mark.parametrize("world", ["normal", "one scheme five times as noisy", "bimodal, modes 10 sd apart"])
def test_an_interaction_that_there_is_not(world: str) -> None:
    assert false_interactions(WORLDS[world], 8, 1000) <= 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


def test_names_at_their_best_settings() -> None:
    """The baseline is the best of several, so its comparisons count as often, and each setting may seem the best."""
    for settings in ((3, 3), (1, 10)):
        assert false_claims_of_grids(NOISES["normal"], settings, 5, 100) <= 0.05 + 3 * (0.05 * 0.95 / 100) ** 0.5
