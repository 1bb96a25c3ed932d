"""Families of comparisons: Holm's correction, simultaneous intervals, and pages of several sections."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import by_seed, differences
from scipy import stats

from seedstats.statistics.families import holm, one_family, without_claims
from seedstats.statistics.paired import paired


def test_holm_worked_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(derandomize=True, deadline=None)
def test_holm_properties(p_values: list[float]) -> None:
    corrected = holm(by_seed(p_values))
    assert all(p <= corrected[i] <= min(1, len(p_values) * p) for i, p in enumerate(p_values))
    assert min(corrected.values()) == min(1, len(p_values) * min(p_values))
    for i, j in itertools.permutations(corrected, 2):
        if p_values[i] <= p_values[j]:
            assert corrected[i] <= corrected[j]


def test_groups_that_cannot_be_tested_are_not_counted() -> None:
    drawn = np.random.default_rng(2).normal(4, 0.02, (3, 5))
    losses = dict(zip(("absolute", "a", "b"), map(by_seed, drawn), strict=True))
    alone = differences(losses, "absolute")
    more = differences(losses | {"single": {0: 4.0}, "apart": {77: 4.0, 78: 4.0}, "empty": {}}, "absolute")
    assert all(more[name] == alone[name] for name in alone)
    assert alone["a"].comparisons == 2
    pairwise = [differences({k: losses[k] for k in ("absolute", name)}, "absolute")[name].p_value for name in alone]
    assert [d.p_value for d in alone.values()] == pytest.approx(list(holm(by_seed(pairwise)).values()))
    single, apart = more["single"], more["apart"]
    assert single.mean == pytest.approx(4.0 - losses["absolute"][0])
    assert (single.interval, single.sd, single.p_value, single.n) == (None, None, None, 1)
    assert (apart.mean, apart.interval, apart.sd, apart.p_value, apart.n) == (None,) * 4 + (0,)
    assert more["empty"].n == 0


def test_sections_of_a_page_are_one_family() -> None:
    """p = 0.02 in one of four sections is no claim, though it would be one if the section stood alone."""
    rng = np.random.default_rng(5)
    base = by_seed(rng.normal(4, 0.1, 5))
    sections = []
    for _ in range(4):
        noise = stats.zscore(rng.normal(size=5), ddof=1)
        found = {seed: loss + 0.01 * (noise[seed] + 1.7) for seed, loss in base.items()}
        sections.append(paired({"t5": (found, base)}))
    alone, page = (one_family(of) for of in (sections[:1], sections))
    assert alone[0]["t5"].p_value == pytest.approx(0.019, abs=1e-3)
    assert alone[0]["t5"].significant
    assert not any(section["t5"].significant for section in page)
    assert page[0]["t5"].p_value == pytest.approx(4 * alone[0]["t5"].p_value)
    assert page[0]["t5"].comparisons == 4
    assert one_family(sections[:1], [4])[0]["t5"].p_value == page[0]["t5"].p_value  # planned, and not run


def test_looks_count_as_further_comparisons() -> None:
    """Each of three looks at two schemes: as if six were compared, whose others show nothing."""
    drawn = np.random.default_rng(3).normal([[4], [4.03], [3.7]], 0.02, (3, 5))
    base, near, far = map(by_seed, drawn)
    alone = paired({"near": (near, base), "far": (far, base)})
    (once,), (thrice,), (of_six,) = one_family([alone]), one_family([alone], looks=3), one_family([alone], [6])
    assert thrice == of_six
    assert thrice["far"].p_value == pytest.approx(min(1, 6 * alone["far"].p_value))
    assert thrice["near"].p_value == pytest.approx(min(1, 5 * alone["near"].p_value))
    assert thrice["far"].significant
    for name in alone:
        (low, high), (inner_low, inner_high) = thrice[name].interval, once[name].interval
        assert low < inner_low < inner_high < high
    assert all(of.comparisons == 6 for of in thrice.values())
    assert one_family([alone], [4], looks=2)[0]["far"].comparisons == 8  # planned, and looked at twice


def test_comparisons_in_doubt_claim_nothing() -> None:
    drawn = np.random.default_rng(3).normal([[4], [4.3]], 0.02, (2, 5))
    alone = paired({"far": (by_seed(drawn[1]), by_seed(drawn[0]))})
    (found,) = one_family([without_claims(alone, "the baseline has no finished run")])
    assert alone["far"].significant
    assert not found["far"].significant
    assert not found["far"].equal_within(10)
    assert (found["far"].mean, found["far"].n) == (alone["far"].mean, 5)
    assert found["far"].outcomes.unsettled == "the baseline has no finished run"


def test_intervals_are_simultaneous() -> None:
    """Bonferroni's, of all comparisons of the page."""
    values = {name: by_seed(of) for name, of in zip("abcd", np.random.default_rng(1).normal(size=(4, 6)), strict=True)}
    found = differences(values, "a")["b"]
    error = found.sd / 6**0.5
    assert found.interval == pytest.approx(stats.t.interval(1 - 0.05 / 3, 5, found.mean, error))


def test_a_claim_that_holm_makes_alone_ends_at_0() -> None:
    """A second difference is shown once the first one is; its own interval among both would reach beyond 0."""
    noise = stats.zscore([1.0, 5.0, 2.0, 4.0, 3.0], ddof=1)
    values = {"base": by_seed([0.0] * 5), "far": by_seed(noise - 9), "near": by_seed(noise[::-1] - 1.35)}
    found = differences(values, "base")
    alone = stats.t.interval(1 - 0.05 / 2, 4, -1.35, 5**-0.5)
    assert alone[0] < 0 < alone[1]
    assert found["near"].significant
    assert found["near"].interval == pytest.approx((alone[0], 0))
    assert found["near"].reversed.interval == pytest.approx((0, -alone[0]))
    assert found["far"].interval.high < 0
