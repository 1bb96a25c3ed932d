"""Differences over text: of two checkpoints, and intervals over seeds and text at once (coverage:
`test_simulated_claims.py`, `test_simulated_estimates.py`)."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from seedstats.statistics.stretches import FEWEST_BLOCKS, checkpoint_difference, seeds_and_text, text_blocks, two_way
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


# Two checkpoints


@pytest.mark.parametrize(("comparisons", "lengths"), [(1, 1200), (10, 1200), (1, 20)])
def test_interval_of_two_checkpoints_is_that_of_blocks(comparisons: int, lengths: float) -> None:
    """As many as the text asks for, with the degrees of freedom that their correlation leaves."""
    ((differences,),) = correlated_text(lengths, 1, seeds=1)
    found, blocks = checkpoint_difference(differences, comparisons=comparisons), text_blocks(differences[None])
    mean, n = differences.mean(), blocks.differences.shape[1]
    freedom = (n - 1) / max(1, blocks.inflation)
    expected = stats.t.interval(1 - 0.05 / comparisons, freedom, mean, stats.sem(blocks.differences[0]))
    assert (found.mean, found.n) == (pytest.approx(mean), n)
    assert found.interval == pytest.approx(expected)


def test_a_constant_difference_has_no_spread() -> None:
    found = checkpoint_difference(np.full(63, 0.5))
    assert (found.mean, found.interval, found.sd) == (0.5, (0.5, 0.5), 0.0)


def test_too_few_stretches_for_an_interval() -> None:
    differences = np.random.default_rng(10).normal(size=FEWEST_BLOCKS)
    assert checkpoint_difference(differences[1:]) is None
    assert checkpoint_difference(differences).n == FEWEST_BLOCKS
