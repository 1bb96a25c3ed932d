"""Groups that succeed or fail: the exact test and interval against scipy, and their guarantee by enumeration."""

import itertools

import numpy as np
import pytest
from scipy import stats

from seedstats.statistics.counts import TwoCounts, counts_of


@pytest.mark.parametrize(("a", "b", "n"), [(5, 0, 5), (0, 4, 5), (8, 1, 8), (12, 0, 12), (7, 3, 7)])
def test_p_value_near_that_of_barnard(a: int, b: int, n: int) -> None:
    """Scipy's, one-sided and doubled; it orders tables by another estimate of the error."""
    one_sided = stats.barnard_exact([[max(a, b), min(a, b)], [n - max(a, b), n - min(a, b)]], alternative="greater")
    other = stats.boschloo_exact([[a, b], [n - a, n - b]]).pvalue
    assert TwoCounts(a, b, n).p_value == pytest.approx(min(2 * one_sided.pvalue, other), rel=0.02)


def largest_p_value(first: int, second: int, n: int, difference: float) -> float:
    """Return the largest probability of tables at least as extreme, over chances that differ by `difference`."""

    def distance(a: int, b: int) -> float:
        p, q = (a + 1) / (n + 2), (b + 1) / (n + 2)
        return (p - q - difference) / (p * (1 - p) + q * (1 - q)) ** 0.5

    tables = itertools.product(range(n + 1), repeat=2)
    extreme = [table for table in tables if distance(*table) >= distance(first, second) - 1e-9]
    chances = np.linspace(max(0, -difference), min(1, 1 - difference), 101)
    return max(
        sum(stats.binom.pmf(a, n, q + difference) * stats.binom.pmf(b, n, q) for a, b in extreme) for q in chances
    )


@pytest.mark.parametrize(("first", "second"), [(1, 0), (3, 1), (2, 3), (3, 3)])
def test_interval_ends_where_the_exact_test_stops_to_reject(first: int, second: int) -> None:
    low, _ = TwoCounts(first, second, 5).interval((first - second) / 5, 0.95)
    assert largest_p_value(first, second, 5, low) <= 0.025 < largest_p_value(first, second, 5, low + 0.01)


def test_groups_that_agree_and_groups_in_the_other_order() -> None:
    assert TwoCounts(5, 0, 5).p_value == pytest.approx(2 / 2**10)
    for a, b in itertools.product(range(5), repeat=2):
        one, other = TwoCounts(a, b, 4), TwoCounts(b, a, 4)
        assert one.reversed == other
        assert one.p_value == other.p_value
        assert one.interval((a - b) / 4, 0.95) == other.interval((b - a) / 4, 0.95).reversed
    assert TwoCounts(2, 2, 4).p_value == 1


@pytest.mark.parametrize("confidence", [0.95, 1 - 0.05 / 17])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_neither_test_nor_interval_errs_more_often_than_stated(n: int, confidence: float) -> None:
    """Whatever the chances; by all tables there are. Newcombe's interval misses up to six times as often."""
    counts = {(a, b): TwoCounts(a, b, n) for a in range(n + 1) for b in range(n + 1)}
    ends = {(a, b): of.interval((a - b) / n, confidence) for (a, b), of in counts.items()}
    for p, q in itertools.product((0.02, 0.13, 0.4, 0.5, 0.77, 0.95), repeat=2):
        chance = stats.binom.pmf(np.arange(n + 1), n, p)[:, None] * stats.binom.pmf(np.arange(n + 1), n, q)
        missed = sum(chance[of] for of, (low, high) in ends.items() if not low <= p - q <= high)
        assert missed <= 1 - confidence
        if p == q:
            assert sum(chance[of] for of, found in counts.items() if found.p_value < 0.05) <= 0.05


def test_what_counts_as_success_and_failure() -> None:
    assert counts_of([1.0, 0.95, 0.02], [0.0, 0.1, 0.91]) == TwoCounts(2, 1, 3)
    assert counts_of([1.0, 0.95, 0.3], [0.0, 0.1, 0.9]) is None
    assert counts_of([1.0, 0.95], [0.99, 1.0]) is None
    assert counts_of([0.0, 0.05], [0.0, 0.1]) is None
