"""Differences over text: bootstrap over its stretches, and intervals over seeds and text at once (coverage:
`test_simulated_claims.py`, `test_simulated_estimates.py`)."""

import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scipy import stats

from poslab.statistics.text import FEWEST_FOR_BOOTSTRAP, seeds_and_text, token_difference, two_way
from poslab.statistics.text_blocks import FEWEST_BLOCKS, contiguous_blocks, text_blocks


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Degenerate inputs must be dealt with before scipy or numpy complain."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


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


# Stretches of text, of two checkpoints


def correlated(generator: np.random.Generator, rows: int, tokens: int) -> np.ndarray:
    """Moving averages of skewed noise over 8 tokens: mean 0, sd 1, correlated over distances up to 7."""
    noise = generator.exponential(1, (rows, tokens + 7)) - 1
    return sum(noise[:, i : i + tokens] for i in range(8)) / math.sqrt(8)


def test_checkpoint_interval_covers_the_truth() -> None:
    """Also where neighbouring tokens are alike; single tokens as stretches would not do."""
    generator = np.random.default_rng(7)
    rows, tokens = 200, 3_200
    noise = correlated(generator, rows, tokens)
    second = generator.exponential(3, tokens)

    def coverage(stretch: int, rows: int) -> float:
        count, missed = tokens // stretch, 0
        for row in noise[:rows]:
            of_stretches = (contiguous_blocks(losses, count) for losses in (second + 0.3 + row, second))
            low, high = token_difference(np.subtract(*of_stretches), resamples=200).interval
            missed += not low <= 0.3 <= high
        return 1 - missed / rows

    # 3 standard errors are 4.6 %; stretches of 16 miss a little of the correlation, so that 92 % are expected.
    stretches, single_tokens = coverage(16, rows), coverage(1, 100)
    assert 0.87 < stretches < 0.98
    assert single_tokens < 0.75


def test_checkpoint_interval_worked_out() -> None:
    """Without correlation: about mean +- 1.96 sd / sqrt(n)."""
    first, second = np.random.default_rng(8).normal(3, 1, (2, 240))
    found = token_difference(first - second)
    assert found.mean == pytest.approx((first - second).mean())
    assert found.sd == pytest.approx((first - second).std(ddof=1))
    assert found.n == 240
    half = 1.96 * found.sd / math.sqrt(240)
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(half, rel=0.06)
    assert (found.interval.high + found.interval.low) / 2 == pytest.approx(found.mean, abs=0.06 * half)


def test_checkpoint_interval_repeats() -> None:
    first, second = np.random.default_rng(9).normal(3, 1, (2, 240))
    np.random.seed(1)
    once = token_difference(first - second)
    np.random.seed(2)
    assert token_difference(first - second) == once


def test_a_constant_difference_has_no_spread() -> None:
    found = token_difference(np.full(63, 0.5), resamples=100)
    assert (found.mean, found.interval, found.sd) == (0.5, (0.5, 0.5), 0.0)


def test_too_few_stretches_for_an_interval() -> None:
    losses = np.random.default_rng(10).normal(3, 1, (2, FEWEST_FOR_BOOTSTRAP))
    assert token_difference(np.subtract(*losses[:, 1:])) is None
    assert token_difference(np.subtract(*losses)).n == FEWEST_FOR_BOOTSTRAP


def test_intervals_of_several_checkpoints_are_wider() -> None:
    first, second = np.random.default_rng(8).normal(3, 1, (2, 240))
    one, among = token_difference(first - second).interval, token_difference(first - second, comparisons=10).interval
    assert (among.high - among.low) / (one.high - one.low) == pytest.approx(2.807 / 1.96, rel=0.08)
