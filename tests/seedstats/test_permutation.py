"""Exact tests: against all permutations written out, and against scipy."""

import itertools

import numpy as np
import pytest
from scipy import stats

from seedstats.statistics.permutation import MOST_EXACT, label_test, share_test, sign_flip_test, signed_ranks


def test_sign_flips_worked_by_hand() -> None:
    # Of the 8 ways to choose the signs of 1, 2, 4 only +++ and --- give a mean as far from 0; of -1, 2, 4 also ++-
    # and so on do not, but +++ and --- do, and the sum 5 itself: 4 of 8.
    assert sign_flip_test([1, 2, 4]) == 2 / 8
    assert sign_flip_test([-1, 2, 4]) == 4 / 8
    assert sign_flip_test([1, 2, 4], "greater") == 1 / 8
    assert sign_flip_test([0, 0, 0]) == 1
    assert sign_flip_test([0, 0, 1]) == 1


@pytest.mark.parametrize("n", [1, 4, 11])
@pytest.mark.parametrize("draw", ["normal", "integers"])
def test_sign_flips_in_all_ways(n: int, draw: str) -> None:
    rng = np.random.default_rng(n)
    differences = rng.normal(0.3, 1, n) if draw == "normal" else rng.integers(-2, 4, n).astype(float)
    sums = np.array(list(itertools.product((1, -1), repeat=n))) @ differences
    assert sign_flip_test(differences) == np.mean(abs(sums) >= abs(differences.sum()) - 1e-9)
    assert sign_flip_test(differences, "greater") == np.mean(sums >= differences.sum() - 1e-9)


@pytest.mark.parametrize("n", [13, 30, MOST_EXACT])
def test_many_seeds_that_agree_are_worth_all_that_they_are(n: int) -> None:
    """Not what a number of drawn signs allows: 14 seeds show 136 pairs."""
    assert sign_flip_test([1.0] * n) == 2 / 2**n


def test_of_more_numbers_ways_are_drawn() -> None:
    """The same ones each time."""
    differences = np.random.default_rng(1).normal(0.2, 1, 100)
    assert sign_flip_test(differences) == sign_flip_test(differences)
    assert sign_flip_test(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    first, second = differences[:60], differences[60:]
    assert label_test(first, second) == pytest.approx(stats.ttest_ind(first, second).pvalue, abs=0.02)


@pytest.mark.parametrize(("of_first", "of_second"), [(3, 4), (5, 5)])
def test_labels_in_all_ways(of_first: int, of_second: int) -> None:
    rng = np.random.default_rng(of_first)
    for values in (rng.random(of_first + of_second), rng.integers(0, 3, of_first + of_second) / 2):
        total = values.mean() * of_first
        sums = [sum(chosen) - total for chosen in itertools.combinations(values, of_first)]
        observed = sums[0]
        expected = np.mean([abs(other) >= abs(observed) - 1e-9 for other in sums])
        assert label_test(values[:of_first], values[of_first:]) == expected


def test_labels_of_successes_are_fishers() -> None:
    for a, b in itertools.product(range(7), repeat=2):
        groups = [[1.0] * of + [0.0] * (6 - of) for of in (a, b)]
        assert label_test(*groups) == pytest.approx(stats.fisher_exact([[a, b], [6 - a, 6 - b]]).pvalue)


def test_which_exact_test_is_taken() -> None:
    few, other = [0.5, 0.55, 0.6, 0.62, 0.61], [0.4, 0.41, 0.42, 0.43, 0.44]
    assert share_test(few, other) == 2 * label_test(few, other) == 4 / 252
    seeds = np.linspace(0.2, 0.8, 10)
    assert share_test(list(seeds + 0.05), list(seeds)) == 2 * 2 / 2**10  # of seeds that move both, signs know more


def test_signed_ranks() -> None:
    assert signed_ranks([0.5, -np.inf, np.inf, -1.0]) == [1.0, -3.5, 3.5, -2.0]
    few, many = (sign_flip_test(signed_ranks([-1.0] * n + [np.inf])) for n in (7, 11))
    assert many < 0.05 < few
