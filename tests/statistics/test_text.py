"""Differences over text: bootstrap over tokens, and intervals over seeds and text at once (coverage:
`test_simulated_claims.py`)."""

import math
import tracemalloc
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scipy import stats

from poslab.statistics.blocks import MOST_BLOCKS, SMALLEST_BLOCK
from poslab.statistics.text import (
    FEWEST_FOR_BOOTSTRAP,
    blocks,
    seeds_and_text,
    token_difference,
    two_way,
)
from simulated_claims import misses


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Degenerate inputs must be dealt with before scipy or numpy complain."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# Seeds and text


def test_tokens_that_are_correlated_are_covered() -> None:
    """Differences of neighbouring tokens are alike over some tokens; blocks of a long text reach farther."""
    rng = np.random.default_rng(3)
    noise = (rng.exponential(size=(300, 4007)) - 1).cumsum(1)
    of_text = noise[:, 7:] - noise[:, :-7]  # moving averages over 7
    rate = misses(np.stack([blocks(rng.normal(0, 0.1, (5, 1)) + row + rng.normal(size=(5, 4000))) for row in of_text]))
    assert rate < 0.09


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


@pytest.mark.parametrize("tokens", [SMALLEST_BLOCK, 533, 100_001])
def test_blocks_are_means_of_neighbours(tokens: int) -> None:
    losses = np.random.default_rng(6).normal(4, 1, (2, tokens))
    found = blocks(losses)
    count = min(MOST_BLOCKS, tokens // SMALLEST_BLOCK)
    assert found.shape == (2, count)
    assert found.mean(1) == pytest.approx(losses.mean(1), abs=1e-12)  # though some have a token more
    assert found[1, -1] == pytest.approx(losses[1, -(tokens // count) :].mean(), abs=0.2)
    assert blocks(losses[:, : SMALLEST_BLOCK - 1]).shape == (2, 0)


def test_a_difference_over_seeds_and_text() -> None:
    differences = np.random.default_rng(5).normal(0.1, 0.2, (4, 12))
    mean, error, freedom = two_way(differences)
    found = seeds_and_text(differences)
    assert (found.mean, found.sd, found.n) == (mean, error, 4)
    assert found.p_value == pytest.approx(2 * stats.t.sf(mean / error, freedom))
    assert found.corrected(0.5, 3).interval == pytest.approx(stats.t.interval(1 - 0.05 / 3, freedom, mean, error))


# Tokens of two checkpoints


def correlated(generator: np.random.Generator, rows: int, tokens: int) -> np.ndarray:
    """Moving averages of skewed noise over 8 tokens: mean 0, sd 1, correlated over distances up to 7."""
    noise = generator.exponential(1, (rows, tokens + 7)) - 1
    return sum(noise[:, i : i + tokens] for i in range(8)) / math.sqrt(8)


def test_token_interval_covers_the_truth() -> None:
    """Also where neighbouring tokens are alike, and where single tokens as blocks would not do."""
    generator = np.random.default_rng(7)
    rows, tokens = 200, 3_205
    noise = correlated(generator, rows, tokens)
    second = generator.exponential(3, tokens)

    def coverage(block: int, rows: int) -> float:
        found = [token_difference(second + 0.3 + row, second, block=block, resamples=200) for row in noise[:rows]]
        return sum(f.interval.low <= 0.3 <= f.interval.high for f in found) / rows

    # 3 standard errors are 4.6 %; blocks of 16 miss a little of the correlation, so that 92 % are expected.
    blocks, single_tokens = coverage(16, rows), coverage(1, 100)
    assert 0.87 < blocks < 0.98
    assert single_tokens < 0.75


def test_token_interval_worked_out() -> None:
    """Without correlation: about mean +- 1.96 sd / sqrt(n)."""
    generator = np.random.default_rng(8)
    first, second = generator.normal(3, 1, (2, 20_000))
    found = token_difference(first, second, resamples=4000)
    assert found.mean == pytest.approx((first - second).mean())
    assert found.sd == pytest.approx((first - second).std(ddof=1))
    assert found.n == 20_000
    half = 1.96 * math.sqrt(2 / 20_000)
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(half, rel=0.06)
    assert (found.interval.high + found.interval.low) / 2 == pytest.approx(found.mean, abs=0.06 * half)


def test_token_interval_repeats() -> None:
    first, second = np.random.default_rng(9).normal(3, 1, (2, 1000))
    np.random.seed(1)
    once = token_difference(first, second)
    np.random.seed(2)
    assert token_difference(first, second) == once


def test_blocks_of_unequal_lengths_keep_the_mean() -> None:
    """A constant difference has no spread, whatever the number of tokens."""
    for tokens in (FEWEST_FOR_BOOTSTRAP * 16, FEWEST_FOR_BOOTSTRAP * 16 + 15, 1009):
        found = token_difference(np.full(tokens, 4.5), np.full(tokens, 4.0), resamples=100)
        assert (found.mean, found.interval, found.sd) == (0.5, (0.5, 0.5), 0.0)


def test_longest_texts_within_memory() -> None:
    first, second = np.random.default_rng(10).normal(3, 1, (2, 100_000))
    tracemalloc.start()
    found = token_difference(first, second)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.interval.low < found.mean < found.interval.high
    assert peak < 100e6, f"{peak / 1e6:.0f} MB"


def test_too_few_tokens_for_an_interval() -> None:
    one = token_difference([2.0], [1.5])
    assert (one.mean, one.interval, one.sd, one.n) == (0.5, None, None, 1)
    few = token_difference(np.arange(FEWEST_FOR_BOOTSTRAP * 16 - 1.0), np.zeros(FEWEST_FOR_BOOTSTRAP * 16 - 1))
    assert few.interval is None
    assert few.sd > 0


def test_token_intervals_of_several_runs_are_wider() -> None:
    first, second = np.random.default_rng(8).normal(3, 1, (2, 2_000))
    one, among = token_difference(first, second).interval, token_difference(first, second, comparisons=10).interval
    assert (among.high - among.low) / (one.high - one.low) == pytest.approx(2.807 / 1.96, rel=0.08)
