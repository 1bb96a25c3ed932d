"""The best set and rank intervals: against tests of scipy, and figures whose answer is clear."""

from itertools import permutations

import numpy as np
import pytest
from paired_figures import by_seed

from seedstats.statistics.best import best_set, rank_intervals, shown
from seedstats.statistics.counts import TwoCounts
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import paired

LOSSES = {
    "rope": by_seed([4.0, 4.11, 3.9, 4.02]),
    "t5": by_seed([4.01, 4.09, 3.92, 4.03]),
    "absolute": by_seed([4.5, 4.62, 4.41, 4.49]),
}


def test_members_and_p_values() -> None:
    """Each p-value is the smallest of those of claims that another one is better, times their number."""
    found = best_set(LOSSES)
    assert found.members == ("rope", "t5")
    claims = paired({pair: (LOSSES[pair[0]], LOSSES[pair[1]]) for pair in permutations(LOSSES, 2)})
    for name in LOSSES:
        worse = [d.p_value for pair, d in claims.items() if pair[0] == name and d.mean > 0]
        assert found.p_values[name] == pytest.approx(min(1.0, 2 * min(worse, default=1.0)))


def test_direction_confidence_and_order() -> None:
    higher = {name: {seed: -loss for seed, loss in of.items()} for name, of in LOSSES.items()}
    assert best_set(higher, lower=False).members == ("rope", "t5")
    assert best_set(higher).members == ("absolute",)
    assert best_set(LOSSES, confidence=1 - 1e-9).members == ("rope", "t5", "absolute")
    assert best_set({"alone": by_seed([1.0])}).members == ("alone",)


def test_seeds_in_common_are_compared() -> None:
    """However they are ordered; with fewer than two, nothing is shown."""
    shuffled = {**LOSSES, "absolute": dict(reversed(LOSSES["absolute"].items()))}
    assert best_set(shuffled).p_values == pytest.approx(best_set(LOSSES).p_values)
    others = {**LOSSES, "absolute": {10 + seed: loss for seed, loss in LOSSES["absolute"].items()}}
    assert "absolute" in best_set(others).members


def test_even_differences_are_no_certainty() -> None:
    """The t test would divide by zero."""
    even = {"a": by_seed([1, 2, 3, 4]), "b": by_seed([2, 3, 4, 5])}
    assert best_set(even).p_values == {"a": 1.0, "b": 2 / 16}
    same = {"a": by_seed([1, 2, 3]), "b": by_seed([1, 2, 3])}
    assert best_set(same).members == ("a", "b")


def test_proportions_are_compared_as_claims_are() -> None:
    """All solved or not: as counts; else by an exact test."""
    solved = {"a": by_seed([1, 1, 1, 1, 1]), "b": by_seed([0, 0, 0, 0, 0]), "c": by_seed([1, 0, 1, 1, 1])}
    found = best_set(solved, lower=False, proportion=True)
    assert found.members == ("a", "c")
    assert found.p_values["b"] == pytest.approx(2 * TwoCounts(5, 0, 5).p_value)
    nearly = {**solved, "b": by_seed([0.3, 0, 0.2, 0, 0]), "c": solved["a"]}
    assert best_set(nearly, lower=False, proportion=True).p_values["b"] == pytest.approx(2 * 4 / 252)


def test_ranks_cover_every_order_that_agrees() -> None:
    shown = [("a", "c"), ("b", "c"), ("a", "d")]
    orders = [order for order in permutations("abcd") if all(order.index(x) < order.index(y) for x, y in shown)]
    ranks = {group: np.array([1 + order.index(group) for order in orders]) for group in "abcd"}
    found = rank_intervals("abcd", shown)
    assert found == {group: (of.min(), of.max()) for group, of in ranks.items()}


def test_no_claim_contradicts_the_set() -> None:
    """Holm's last step shows c to be worse than a; among three groups its comparison alone doesn't."""
    wide = by_seed([0.08, 0.2, 0.06, 0.16])
    groups = {"a": by_seed([0, 0, 0, 0]), "b": by_seed([4, 4.1, 4.2, 4]), "c": wide}
    (page,) = one_family([paired({(name, "a"): (groups[name], groups["a"]) for name in "bc"})])
    claims = shown(page)
    assert claims == [("a", "b"), ("a", "c")]
    assert best_set(groups).members == ("a", "c")
    assert best_set(groups, claims).members == ("a",)
    assert best_set({"b": groups["b"], "c": wide}, claims).members == ("c",)
    assert shown(page, lower=False) == [("b", "a"), ("c", "a")]
