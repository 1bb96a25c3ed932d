"""Paired comparisons of one pair: against numbers worked out by hand or by scipy."""

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import by_seed, differences
from scipy import stats

from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.intervals import estimate
from seedstats.statistics.outcomes import outcomes_of
from seedstats.statistics.paired import FEWEST_SEEDS, Difference, paired, usual_sd

pytestmark = pytest.mark.filterwarnings("error")  # degenerate inputs are dealt with before scipy or numpy complain


def test_estimate_worked_by_hand() -> None:
    # Mean 3, variance (4 + 1 + 0 + 1 + 4) / 4 = 2.5; the table of t gives 2.776 for 4 degrees of freedom.
    found = estimate([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.n == 5
    assert found.sd == pytest.approx(math.sqrt(2.5))
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert found.interval == pytest.approx((3 - half, 3 + half), abs=1e-6)


def test_estimate_of_one_and_of_equal_values() -> None:
    one = estimate([3.5])
    assert (one.mean, one.interval, one.sd, one.n) == (3.5, None, None, 1)
    equal = estimate([2.5, 2.5, 2.5])
    assert (equal.mean, equal.interval, equal.sd) == (2.5, None, 0.0)  # nothing is known of chance


def test_difference_worked_by_hand() -> None:
    losses = {"absolute": by_seed([4.0, 4.2, 4.1]), "t5": by_seed([3.9, 4.0, 4.1])}
    found = differences(losses, "absolute")["t5"]
    # Differences -0.1, -0.2, 0: mean -0.1, sd 0.1, t = -sqrt(3). With 2 degrees of freedom the p-value has the closed
    # form 1 - |t| / sqrt(2 + t^2), and the table of t gives 4.302653.
    assert found.mean == pytest.approx(-0.1)
    assert found.sd == pytest.approx(0.1)
    assert found.n == 3
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.interval == pytest.approx((-0.1 - half, -0.1 + half), abs=1e-6)
    assert found.p_value == pytest.approx(1 - math.sqrt(3 / 5))
    assert not found.significant


def test_pairs_by_seed_not_by_order() -> None:
    baseline = {0: 4.0, 1: 5.0, 2: 6.0, 9: 100.0}
    shuffled = {2: 5.9, 7: -100.0, 0: 3.9, 1: 4.8}
    found = differences({"absolute": baseline, "t5": shuffled}, "absolute")["t5"]
    assert found.n == 3
    assert found.mean == pytest.approx(-0.4 / 3)


def test_claims_and_intervals_begin_at_three_seeds() -> None:
    """However large the difference; of four schemes compared over two seeds, half the claims would be false."""
    losses = {"absolute": [4.0, 4.2, 4.1], "t5": [3.0, 3.1999, 3.1001]}
    for n in (1, 2, 3):
        found = differences({name: by_seed(of[:n]) for name, of in losses.items()}, "absolute")["t5"]
        assert (found.n, found.significant, found.interval is not None) == (n, n == FEWEST_SEEDS, n == FEWEST_SEEDS)
        assert found.mean == pytest.approx(-1, abs=1e-3)


@pytest.mark.parametrize("seeds", [3, 5, 6])
@pytest.mark.parametrize("shift", [0.0, 0.1, -1e-3])
def test_a_constant_difference_is_no_certainty(seeds: int, shift: float) -> None:
    """The limit of the t test would be p = 0; figures that were edited differ so, trained ones never do."""
    baseline = 4 + np.random.default_rng(3).random(seeds)
    # Adding and taking away 0.1 leaves rounding, which must not count as variance.
    found = differences({"absolute": by_seed(baseline), "t5": by_seed(baseline + shift)}, "absolute")["t5"]
    assert found.mean == pytest.approx(shift)
    assert (found.interval, found.sd) == (None, 0)
    assert found.p_value == (2 / 2**seeds if shift else 1)


# The sd that is usual


def test_three_seeds_that_agree_are_no_certainty_where_others_do_not() -> None:
    """Of schemes that come out in one of two ways, a pair whose every seed came out apart."""
    drawn = {"base": [4.0, 4.01, 3.99], "lucky": [3.0, 3.009, 2.991], "a": [4.0, 3.01, 4.0], "b": [3.0, 4.02, 3.01]}
    groups = {name: by_seed(of) for name, of in drawn.items()}
    alone = differences({name: groups[name] for name in ("base", "lucky")}, "base")["lucky"]
    among = differences(groups, "base")["lucky"]
    assert alone.p_value < 1e-4
    assert among.p_value > 0.05
    sds = [np.std(np.subtract(*pair), ddof=1) for pair in combinations(drawn.values(), 2)]
    error = np.median(sds) / 2 / math.sqrt(3)
    assert usual_sd(list(groups.values())) == pytest.approx(np.median(sds))
    pairs = {name: (groups[name], groups["base"]) for name in ("lucky", "a", "b")}
    assert paired(pairs)["lucky"].p_value == pytest.approx(2 * stats.t.sf(1 / error, 2), rel=1e-3)


def test_the_usual_sd_never_falls_where_a_group_is_gone() -> None:
    """So that no claim comes of it."""
    drawn = np.random.default_rng(4).standard_t(2, (200, 5, 6))
    for of_groups in drawn:
        groups = [by_seed(of) for of in of_groups]
        whole = usual_sd(groups)
        assert usual_sd(groups[1:], planned=5) >= whole
        assert usual_sd(groups[:2]) == 0.0


# Proportions, which end at 0 and 1


def shares(group: list[float], baseline: list[float], others: int = 0) -> Difference:
    """Return the comparison of two groups. others: groups beside it that are compared as well."""
    values = {"base": by_seed(baseline), "group": by_seed(group)}
    values |= {f"other_{n}": by_seed(baseline) for n in range(others)}
    return differences(values, "base", proportion=True)["group"]


def test_groups_that_solve_or_fail_are_compared_as_counts() -> None:
    """8 of 8 against 1 of 8 among seven comparisons; flipped signs would need 9 seeds that all agree."""
    found = shares([1.0] * 7 + [0.97], [0.0] * 7 + [1.0], others=6)
    assert found.significant
    assert found.p_value == pytest.approx(7 * TwoCounts(8, 1, 8).p_value)
    assert found.interval.low > 0.1


def test_seeds_that_all_agree_have_an_interval() -> None:
    found = shares([1.0] * 5, [0.0] * 5)
    assert found.sd == 0
    assert found.significant
    assert found.interval == pytest.approx((0.38, 1))
    assert found.reversed.interval == pytest.approx((-1, -0.38))
    assert found.reversed.corrected(0.001, 1).interval == pytest.approx((-1, -0.38))


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=3, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_shares_and_their_intervals(pairs: list[tuple[int, int]]) -> None:
    """An interval lies within what can be, and excludes 0 where a difference is claimed."""
    group, baseline = ([number / 8 for number in column] for column in zip(*pairs, strict=True))
    found = shares(group, baseline)
    if found.interval is None:
        assert found.sd == 0
    else:
        assert -1 <= found.interval.low <= found.mean <= found.interval.high <= 1
        assert not found.significant or found.interval.low * found.interval.high >= 0
    of_group = estimate(group, proportion=True)
    assert of_group.interval is None if of_group.sd == 0 else 0 <= of_group.interval.low <= of_group.interval.high <= 1


def test_nearly_equal_differences_claim_no_more_than_equal_ones() -> None:
    found = shares([0.8, 0.78, 0.77], [0.2, 0.21, 0.2])
    assert stats.ttest_rel([0.8, 0.78, 0.77], [0.2, 0.21, 0.2]).pvalue < 0.001
    assert found.p_value == 2 * 2 / 20  # of 20 ways to choose labels, two are as far apart


# Equality within a margin

GAPS = [0.01, -0.012, 0.004, 0.006, -0.001]


@pytest.mark.parametrize("family", [1, 3])
@pytest.mark.parametrize("margin", [0.005, 0.015, 0.03])
@pytest.mark.parametrize("shift", [-0.03, 0.0, 0.01])
def test_equality_is_that_of_two_one_sided_tests(margin: float, shift: float, family: int) -> None:
    """Of scipy, at a level that the comparisons of the page share."""
    gaps = [gap + shift for gap in GAPS]
    too_high = stats.ttest_1samp(gaps, margin, alternative="less").pvalue
    too_low = stats.ttest_1samp(gaps, -margin, alternative="greater").pvalue
    found = differences({"t5": by_seed(gaps), "absolute": by_seed([0.0] * 5)}, "absolute", family=family)["t5"]
    assert found.comparisons == family
    assert found.equal_within(margin) == found.reversed.equal_within(margin) == (max(too_high, too_low) < 0.05 / family)


def test_equality_takes_the_sd_that_is_usual() -> None:
    """Three seeds that agree by chance are equal to nothing where others do not agree."""
    drawn = {"base": [4.0, 4.01, 3.99], "alike": [4.0, 4.009, 3.991], "a": [4.0, 3.01, 4.0], "b": [3.0, 4.02, 3.01]}
    groups = {name: by_seed(of) for name, of in drawn.items()}
    assert paired({0: (groups["alike"], groups["base"])})[0].equal_within(0.02)
    assert not differences(groups, "base")["alike"].equal_within(0.02)


@pytest.mark.parametrize(
    ("gaps", "planned"),
    [([0.01], ()), ([0.0, 0.001], ()), ([0.0] * 3, ()), ([0.01] * 3, ()), ([*GAPS, math.inf], ())],
    ids=["one seed", "two seeds", "equal", "alike", "diverged"],
)
def test_equality_is_not_shown(gaps: list[float], planned: Iterable[int]) -> None:
    """Where the spread is not known, or a seed diverged."""
    groups = {"t5": by_seed(gaps), "absolute": by_seed([0.0] * len(gaps))}
    assert not differences(groups, "absolute", planned={"t5": [*planned]})["t5"].equal_within(0.2)


# Missing and diverged seeds


def test_outcomes_of_a_pair() -> None:
    found = outcomes_of({1: 4.0, 2: math.inf, 3: math.inf}, {1: 3.0, 2: 4.0, 3: math.inf, 5: 1.0}, range(1, 6))
    assert (found.planned, found.missing, found.diverged) == (5, (4, 5), (2, 1))
    assert found.differences == (1.0, math.inf, 0.0)
    assert found.reversed.differences == (-1.0, -math.inf, 0.0)
    assert found.reversed.diverged == (1, 2)
    assert (found.leaning, found.reversed.leaning) == (5.0, -5.0)
