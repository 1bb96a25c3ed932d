"""Estimates hold on simulated studies what they state: figures of `scripts/simulate.py`, of fewer studies."""

import pytest

from simulations.estimates import (
    SEEDS,
    WORLDS,
    barnard,
    fisher,
    power_of_planned,
    ranks_hold,
    rejections,
    shown_equal,
)

COUNT = 400
BY_CHANCE = 3 * (0.05 * 0.95 / COUNT) ** 0.5  # three standard errors of a proportion of 5 %


@pytest.mark.parametrize("pilot", SEEDS)
def test_assured_number_has_its_power_after_most_pilots(pilot: int) -> None:
    expected, reached = power_of_planned("normal", COUNT, pilot)
    assert expected < 0.78
    assert reached > 0.75


def test_tasks_that_are_solved_or_not() -> None:
    """0.95 against 0.05, one of 7 comparisons: Fisher's test finds nothing with 5 seeds."""
    found = {n: rejections(barnard, n, 0.95, 0.05, 0.05 / 7) for n in (5, 8)}
    assert found[5] > 0.5
    assert found[8] > 0.95
    assert rejections(fisher, 5, 0.95, 0.05, 0.05 / 7) == 0


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("truth", [(1,), (1, 1, 1), (0, 1, -1), (0, 2, -2)], ids=str)
def test_a_page_claims_equality_and_differences_falsely_as_rarely_as_promised(
    world: str, truth: tuple[int, ...]
) -> None:
    most = 0.08 if world == "one skewed scheme" else 0.05  # as of any t test of few seeds that are skewed
    for n in (3, 10):
        assert shown_equal(world, COUNT, n, truth)[0] <= most + BY_CHANCE


def test_equality_is_shown_where_it_holds() -> None:
    assert shown_equal("normal", COUNT, 10, (0,))[1] > 0.6
    assert shown_equal("normal", COUNT, 20, (0, 0, 0))[1] > 0.8


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_are_covered(world: str) -> None:
    assert ranks_hold(world, "all tie", COUNT, 4, 5) > 0.95 - BY_CHANCE
