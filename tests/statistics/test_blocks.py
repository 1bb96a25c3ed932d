"""Blocks of a text: their means, their length and what correlation is left."""

import numpy as np
import pytest

from poslab.statistics.blocks import FEWEST_BLOCKS, MOST_BLOCKS, SMALLEST_BLOCK, contiguous_blocks, lag_one, text_blocks
from poslab.statistics.text import two_way
from simulated_estimates import correlated_text


def test_short_text_without_correlation_has_short_blocks() -> None:
    differences = np.random.default_rng(0).normal(0.1, 1, (5, 534))
    found = text_blocks(differences)
    assert found.differences.shape == (5, 534 // SMALLEST_BLOCK)
    assert found.tokens == pytest.approx(534 / 33)
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
    assert np.mean([of.tokens for of in many if of]) > 1.5 * np.mean([of.tokens for of in few if of])
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
    assert text_blocks(np.zeros((3, SMALLEST_BLOCK * FEWEST_BLOCKS - 1))) is None
    trend = np.linspace(-1, 1, 4000) + np.zeros((3, 1))
    assert text_blocks(trend) is None
    assert text_blocks(np.full((3, 4000), 0.1)).differences == pytest.approx(0.1)


def test_lag_one_by_hand() -> None:
    assert lag_one([1, -1, 1, -1]) == -3 / 4
    assert lag_one([1, 1, -1, -1]) == 1 / 4
    assert lag_one([2, 2, 2, 2]) == 0


# Documents


def test_documents_are_blocks_in_any_order() -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 20, 2000)
    text = rng.normal(size=20)[ids] + rng.normal(size=(3, 2000))
    found = text_blocks(text, ids)
    assert found.differences.shape == (3, 20)
    assert found.differences.mean(1) == pytest.approx(text.mean(1), abs=1e-12)
    assert found.tokens == 100
    order = rng.permutation(2000)
    assert text_blocks(text[:, order], ids[order]).differences == pytest.approx(found.differences)


def test_standard_error_of_documents_is_that_of_the_jackknife() -> None:
    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(15), rng.integers(50, 150, 15))
    text = np.tile(rng.normal(size=15)[ids] + rng.normal(size=len(ids)), (2, 1))
    without = np.array([text[0, ids != document].mean() for document in range(15)])
    error = np.sqrt(14 / 15 * np.square(without - text[0].mean()).sum())
    assert float(two_way(text_blocks(text, ids).differences)[1]) == pytest.approx(error)


def test_one_long_document_is_not_many() -> None:
    ids = np.repeat(np.arange(15), [5000] + [10] * 14)
    assert text_blocks(np.random.default_rng(3).normal(size=(3, len(ids))), ids) is None
