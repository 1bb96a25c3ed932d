"""Differences over text: of two checkpoints, and intervals over seeds and text at once (coverage:
`test_simulated_claims.py`, `test_simulated_estimates.py`)."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from seedstats.statistics.stretches import (
    FEWEST_BLOCKS,
    MOST_BLOCKS,
    contiguous_blocks,
    document_blocks,
    lag_one,
    seeds_and_text,
    text_blocks,
    two_way,
)
from simulated_estimates import correlated_text

pytestmark = pytest.mark.filterwarnings("error")  # degenerate inputs are dealt with before scipy or numpy complain


# Seeds and text


@pytest.mark.parametrize("values", [[0.1, 0.3, 0.2], range(12)], ids=str)
@pytest.mark.parametrize("over", ["seeds", "blocks"])
def test_where_only_seeds_or_blocks_differ_it_is_the_interval_over_them(values: Sequence[float], over: str) -> None:
    differences = np.repeat(np.array(values, float)[:, None], 20, 1)
    found = two_way(differences if over == "seeds" else differences.T)
    assert [float(x) for x in found] == pytest.approx([np.mean(values), stats.sem(values), len(values) - 1])


def test_against_the_table_of_an_analysis_of_variance() -> None:
    """Mean squares by loops, Satterthwaite's formula by hand."""
    rng = np.random.default_rng(4)
    d = rng.normal(size=(3, 1)) + rng.normal(size=(1, 10)) + rng.normal(size=(3, 10))
    of_seeds = 10 * sum((row.mean() - d.mean()) ** 2 for row in d) / 2
    of_blocks = 3 * sum((column.mean() - d.mean()) ** 2 for column in d.T) / 9
    residuals = [(d[s, b] - d[s].mean() - d[:, b].mean() + d.mean()) ** 2 for s in range(3) for b in range(10)]
    of_rest = sum(residuals) / 18
    square = of_seeds + of_blocks - of_rest
    assert square > max(of_seeds, of_blocks)
    freedom = square**2 / (of_seeds**2 / 2 + of_blocks**2 / 9 + of_rest**2 / 18)
    assert [float(x) for x in two_way(d)] == pytest.approx([d.mean(), (square / 30) ** 0.5, freedom])


def test_a_difference_over_seeds_and_text() -> None:
    """By the blocks that the text asks for."""
    differences = np.random.default_rng(5).normal(0.1, 0.2, (4, 240))
    mean, error, freedom = two_way(text_blocks(differences).differences)
    found = seeds_and_text(differences)
    assert (found.mean, found.sd, found.n) == (mean, error, 4)
    assert mean == pytest.approx(differences.mean())
    assert found.p_value == pytest.approx(2 * stats.t.sf(mean / error, freedom))
    assert found.corrected(0.5, 3).interval == pytest.approx(stats.t.interval(1 - 0.05 / 3, freedom, mean, error))


def test_a_text_of_one_scene_says_nothing_of_other_text() -> None:
    assert seeds_and_text(np.linspace(-1, 1, 240) + np.zeros((3, 1))) is None
    assert seeds_and_text(np.random.default_rng(5).normal(size=(3, FEWEST_BLOCKS - 1))) is None


# Blocks of a text: their means, their length and what correlation is left


@pytest.mark.parametrize(("stretches", "blocks"), [(33, 33), (240, MOST_BLOCKS)])
def test_text_without_correlation_has_short_blocks(stretches: int, blocks: int) -> None:
    found = text_blocks(np.random.default_rng(1).normal(0.1, 1, (5, stretches)))
    assert found.differences.shape == (5, blocks)
    assert abs(lag_one(found.differences.mean(0))) < 0.5


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


def test_inflation_is_that_of_the_variance_between_blocks() -> None:
    """And of nothing else: what seeds make of each block, and the means of seeds, stay."""
    (text,) = correlated_text(60, 1)
    found = text_blocks(text)
    plain = contiguous_blocks(text, found.differences.shape[1])
    count = plain.shape[1]
    remaining = (count * lag_one(plain.mean(0)) + 1) / (count - 3)
    assert found.inflation == pytest.approx((1 + remaining) / (1 - remaining))
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


# Documents


def test_documents_are_blocks_however_they_are_cut() -> None:
    """And in any order; a document's stretches count by their tokens."""
    rng = np.random.default_rng(1)
    documents, tokens = rng.integers(0, 20, 200), rng.integers(1, 50, 200)
    text = rng.normal(size=20)[documents] + rng.normal(size=(3, 200))
    found = document_blocks(text, documents, tokens).differences
    assert found.shape == (3, 20)
    assert found.mean(1) == pytest.approx(np.average(text, axis=1, weights=tokens), abs=1e-12)
    order = rng.permutation(200)
    assert document_blocks(text[:, order], documents[order], tokens[order]).differences == pytest.approx(found)
    single = document_blocks(np.repeat(text, tokens, 1), np.repeat(documents, tokens), np.ones(tokens.sum()))
    assert single.differences == pytest.approx(found)


def test_standard_error_of_documents_is_that_of_the_jackknife() -> None:
    rng = np.random.default_rng(2)
    sizes, text = rng.integers(50, 150, 15), rng.normal(size=15)
    mean = np.average(text, weights=sizes)
    without = [np.average(np.delete(text, n), weights=np.delete(sizes, n)) for n in range(15)]
    error = np.sqrt(14 / 15 * np.square(without - mean).sum())
    found = document_blocks(np.tile(text, (2, 1)), range(15), sizes)
    assert float(two_way(found.differences)[1]) == pytest.approx(error)


@pytest.mark.parametrize(("sizes", "enough"), [([7] * 9, False), ([7] * 10, True), ([5000] + [10] * 14, False)])
def test_one_long_document_is_not_many(sizes: list[int], enough: bool) -> None:
    text = np.random.default_rng(3).normal(size=(3, len(sizes)))
    assert (document_blocks(text, range(len(sizes)), sizes) is not None) == enough
