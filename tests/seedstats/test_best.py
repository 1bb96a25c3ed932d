"""The best set and rank intervals: against tests of scipy, and figures whose answer is clear."""

from itertools import permutations

import numpy as np
from paired_figures import by_seed
from scipy import stats

from seedstats.statistics.best import BestSet, best_set, rank_intervals, shown
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import paired

LOSSES = {
    "rope": by_seed([4.0, 4.11, 3.9, 4.02, 4.05]),
    "t5": by_seed([4.01, 4.09, 3.92, 4.03, 4.04]),
    "absolute": by_seed([4.5, 4.62, 4.41, 4.49, 4.52]),
    "nope": by_seed([5.0, 5.13, 4.9, 5.02, 5.01]),
}
CLAIMS = [("rope", "nope"), ("t5", "nope"), ("absolute", "nope")]  # with nope as baseline


def test_what_is_claimed_to_be_worse_is_left_out() -> None:
    for baseline in ("nope", None):
        assert best_set(LOSSES, [("rope", "t5")], baseline).left_out == ("t5",)
    assert best_set(LOSSES, [], "nope").members == ("rope", "t5", "absolute", "nope")


def test_others_are_compared_once_the_baseline_is_left_out() -> None:
    """Where all pairs were compared, the claims have said all."""
    assert best_set(LOSSES, CLAIMS, "nope") == BestSet(("rope", "t5"), ("absolute", "nope"))
    assert best_set(LOSSES, CLAIMS, None).left_out == ("nope",)


def test_the_error_rate_of_the_second_step_is_half_of_the_first_s() -> None:
    """Of two names beside the baseline, one p-value, two-sided below half of 5 %."""
    for shift, left_out in ((0.026, ()), (0.0275, ("b",))):
        names = {"a": by_seed([0, 0, 0, 0]), "b": by_seed([shift + x for x in (0.01, -0.01, 0.012, -0.012)])}
        names["base"] = by_seed([9, 9.1, 9.2, 9.3])
        p = stats.ttest_1samp(list(names["b"].values()), 0).pvalue
        found = best_set(names, [("a", "base")], "base")
        assert found.left_out == (*left_out, "base")
        assert (p < 0.025) == bool(left_out)


def test_direction_and_order() -> None:
    higher = {name: {seed: -loss for seed, loss in of.items()} for name, of in LOSSES.items()}
    assert best_set(higher, CLAIMS, "nope", lower=False).members == ("rope", "t5")
    assert best_set({"alone": by_seed([1.0])}).members == ("alone",)


def test_a_baseline_that_diverged_is_none_of_the_best() -> None:
    figures = {name: of for name, of in LOSSES.items() if name != "nope"}
    assert best_set(figures, [], "nope").members == ("rope", "t5")


def test_of_many_names_each_is_compared_with_the_best_ones() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, (40, 5))
    names = {str(number): by_seed(number + of) for number, of in enumerate(noise)}
    assert best_set(names, [("0", "39")], "39").members == ("0",)


def test_proportions_are_compared_as_claims_are() -> None:
    solved = {"a": by_seed([1] * 8), "b": by_seed([0] * 8), "c": by_seed([1] * 7 + [0]), "base": by_seed([0] * 8)}
    found = best_set(solved, [("a", "base")], "base", lower=False, proportion=True)
    assert found.members == ("a", "c")


def test_ranks_cover_every_order_that_agrees() -> None:
    shown = [("a", "c"), ("b", "c"), ("a", "d")]
    orders = [order for order in permutations("abcd") if all(order.index(x) < order.index(y) for x, y in shown)]
    ranks = {group: np.array([1 + order.index(group) for order in orders]) for group in "abcd"}
    found = rank_intervals("abcd", shown)
    assert found == {group: (of.min(), of.max()) for group, of in ranks.items()}


def test_claims_have_the_better_name_first() -> None:
    groups = {"a": by_seed([0, 0, 0]), "b": by_seed([4, 4.1, 4.2])}
    (page,) = one_family([paired({("b", "a"): (groups["b"], groups["a"])})])
    assert (shown(page), shown(page, lower=False)) == ([("a", "b")], [("b", "a")])
