"""Blocks of a text: their means, their length and what correlation is left."""

import numpy as np
import pytest

from poslab.statistics.text_blocks import FEWEST_BLOCKS, MOST_BLOCKS, contiguous_blocks, lag_one, text_blocks
from simulated_estimates import correlated_text


@pytest.mark.parametrize(("stretches", "blocks"), [(33, 33), (240, MOST_BLOCKS)])
def test_text_without_correlation_has_short_blocks(stretches: int, blocks: int) -> None:
    found = text_blocks(np.random.default_rng(1).normal(0.1, 1, (5, stretches)))
    assert found.differences.shape == (5, blocks)
    assert abs(found.lag_one) < 0.5


def test_the_mean_of_each_seed_stays() -> None:
    for text in correlated_text(30, 5):
        found = text_blocks(text)
        assert found.differences.mean(1) == pytest.approx(text.mean(1), abs=1e-12)


@pytest.mark.parametrize("lengths", [1200, 40, 10])
def test_blocks_are_the_shortest_without_a_correlation(lengths: float) -> None:
    """Of the lengths that are tried, each shorter one has neighbours that are alike."""
    for text in correlated_text(lengths, 10):
        found, count = text_blocks(text), MOST_BLOCKS
        while count >= FEWEST_BLOCKS and lag_one(contiguous_blocks(text, count).mean(0)) >= 2 / count**0.5:
            count = min(count - 1, round(count / 1.1))
        assert (None if count < FEWEST_BLOCKS else count) == (found and found.differences.shape[1])


def test_correlation_makes_blocks_longer_and_their_variance_larger() -> None:
    few, many = ([text_blocks(text) for text in correlated_text(lengths, 20)] for lengths in (1200, 20))
    assert 1.5 * np.mean([of.differences.shape[1] for of in many if of]) < MOST_BLOCKS * 0.95
    assert np.mean([of.differences.shape[1] for of in few if of]) > MOST_BLOCKS * 0.95
    assert np.mean([of.inflation for of in many if of]) > 2 > np.mean([of.inflation for of in few if of])


def test_inflation_is_that_of_the_variance_between_blocks() -> None:
    """And of nothing else: what seeds make of each block, and the means of seeds, stay."""
    (text,) = correlated_text(60, 1)
    found = text_blocks(text)
    plain = contiguous_blocks(text, found.differences.shape[1])
    assert found.inflation == pytest.approx((1 + found.lag_one) / (1 - found.lag_one))
    assert found.differences.mean(0).var() == pytest.approx(found.inflation * plain.mean(0).var())
    rest, of_plain = (blocks - blocks.mean(0) for blocks in (found.differences, plain))
    assert rest == pytest.approx(of_plain)


def test_too_few_blocks_are_none() -> None:
    assert text_blocks(np.zeros((3, FEWEST_BLOCKS - 1))) is None
    assert text_blocks(np.zeros((3, FEWEST_BLOCKS))).differences.shape == (3, FEWEST_BLOCKS)
    trend = np.linspace(-1, 1, 240) + np.zeros((3, 1))
    assert text_blocks(trend) is None
    assert text_blocks(np.full((3, 240), 0.1)).differences == pytest.approx(0.1)


@pytest.mark.parametrize("stretches", [40, 63, 240])
def test_contiguous_blocks_are_means_of_neighbours(stretches: int) -> None:
    values = np.random.default_rng(6).normal(4, 1, (2, stretches))
    found = contiguous_blocks(values, 40)
    assert found.shape == (2, 40)
    assert found.mean(1) == pytest.approx(values.mean(1), abs=1e-12)  # though some are longer by one
    if stretches % 40 == 0:
        assert found == pytest.approx(values.reshape(2, 40, -1).mean(2))


def test_lag_one_by_hand() -> None:
    assert lag_one([1, -1, 1, -1]) == -3 / 4
    assert lag_one([1, 1, -1, -1]) == 1 / 4
    assert lag_one([2, 2, 2, 2]) == 0
