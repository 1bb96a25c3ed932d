"""Sentences on differences claim no more than their numbers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import by_seed, differences
from poslab.comparison.sentences import p_text, sentence

from poslab.statistics.intervals import Interval
from poslab.statistics.paired import Difference
from poslab.tasks.metric import EXACT


def test_p_values_are_never_printed_as_certainty() -> None:
    assert [p_text(p) for p in (0.0, 1e-300, 2e-5, 0.0632, 1.0)] == [
        "1e-06 or less", "1e-06 or less", "2e-05", "0.063", "1",
    ]  # fmt: skip


@given(
    a=st.lists(st.floats(-100, 100), min_size=3, max_size=6),
    b=st.lists(st.floats(-100, 100), min_size=3, max_size=6),
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_words_and_numbers_agree(a: list[float], b: list[float]) -> None:
    found = differences({"absolute": by_seed(a), "t5": by_seed(b), "rope": by_seed(b)}, "absolute")["t5"]
    back = differences({"absolute": by_seed(b), "t5": by_seed(a), "rope": by_seed(a)}, "absolute")["t5"]
    assert back.mean == pytest.approx(-found.mean)
    assert back.p_value == pytest.approx(found.p_value)
    assert 0 < found.p_value <= 1
    if found.interval is None:
        assert found.sd == 0
        assert found.p_value >= 2 / 2 ** len(a)
        return
    assert back.reversed.interval == pytest.approx(found.interval)
    assert found.interval.low <= found.mean <= found.interval.high
    excludes_0 = not found.interval.low <= 0 <= found.interval.high
    said = sentence("t5", "absolute", found)
    assert "nan" not in said
    if found.significant:
        assert excludes_0 or 0 in found.interval
        assert ("better" if found.mean < 0 else "worse") in said
        mean, low, high, _ = (float(x) for x in re.findall(r"-?\d+\.?\d*", said.removeprefix("t5")))
        assert 0 < low <= mean <= high or "more than 0" in said
    else:
        assert said.startswith("no difference between t5 and absolute can be shown")
        assert ("excludes 0, but" in said) == excludes_0
        low, high = (float(x) for x in re.search(r"\[(.*), (.*)\]", said).groups())
        assert (not low <= 0 <= high) == excludes_0
        assert "-0.000," not in said


def difference(mean=None, low=None, high=None, sd=None, p_value=None, n=5, **more) -> Difference:
    return Difference(mean, None if low is None else Interval(low, high), sd, p_value, n, **more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            difference(-0.08, -0.11, -0.05, 0.024, 0.001),
            "t5 is better than absolute by 0.080 nats, at least 0.050 and at most 0.110, n = 5",
        ),
        (
            difference(0.08, 0.05, 0.11, 0.024, 0.001),
            "t5 is worse than absolute by 0.080 nats, at least 0.050 and at most 0.110, n = 5",
        ),
        (
            difference(-0.0012, -0.0021, -0.0003, 0.001, 0.02),
            "t5 is better than absolute by 0.0012 nats, at least 0.0003 and at most 0.0021, n = 5",
        ),
        (
            difference(-1.25, -2, -0.5, 0.6, 0.04),
            "t5 is better than absolute by 1.250 nats, at least 0.500 and at most 2.000, n = 5",
        ),
        (
            difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3),
            "no difference between t5 and absolute can be shown with n = 3 (0.010 nats [-0.030, 0.050]); "
            "about 8 seeds would be needed to see 0.02",
        ),
        (
            difference(-0.00001, -0.008, 0.008, 0.009, 0.99, n=8),
            "no difference between t5 and absolute can be shown with n = 8 (0.000 nats [-0.008, 0.008]); "
            "a difference of 0.02 would probably have been seen",
        ),
        (
            difference(0.013, -0.001, 0.027, 0.0167, 0.06, n=8),
            "no difference between t5 and absolute can be shown with n = 8 (0.013 nats [-0.001, 0.027]); "
            "8 seeds usually show a difference of 0.02, yet the interval does not exclude it",
        ),
        (
            difference(0.08, 0.0, 0.18, 0.024, 0.03, comparisons=4),
            "t5 is worse than absolute by 0.080 nats, more than 0 and at most 0.180, n = 5",
        ),
        (
            difference(0.03, -0.01, 0.07, 0.016, 0.0632, comparisons=4),
            "no difference between t5 and absolute can be shown with n = 5 "
            "(0.030 nats [-0.010, 0.070] for 4 comparisons at once); about 11 seeds would be needed to see 0.02",
        ),
        (
            difference(0.0, -900, 900, 100.0, 1.0, n=3),
            "no difference between t5 and absolute can be shown with n = 3 (0.000 nats [-900.000, 900.000]); "
            "100,000 seeds or more would be needed to see 0.02",
        ),
        (
            difference(-0.113, n=2, sd=0.001),
            "t5 was 0.113 nats better than absolute in the mean of 2 seeds; to claim a difference takes 3 or more",
        ),
        (
            difference(-0.05, n=1),
            "t5 was 0.050 nats better than absolute in one run each; one run says nothing about chance",
        ),
        (difference(0.0, n=1), "t5 and absolute were equal in one run each; one run says nothing about chance"),
        (difference(n=0), "t5 and absolute have no seed in common"),
    ],
)
def test_sentences(found: Difference, said: str) -> None:
    assert sentence("t5", "absolute", found) == said


def test_sentence_names_the_effect_it_is_given() -> None:
    found = difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3)
    assert sentence("t5", "absolute", found, effect=0.005).endswith("about 84 seeds would be needed to see 0.005")


@pytest.mark.parametrize("shift", [0.0, -0.1])
def test_losses_that_differ_alike_in_every_seed(shift: float) -> None:
    baseline = 4 + np.random.default_rng(3).random(5)
    found = differences({"absolute": by_seed(baseline), "t5": by_seed(baseline + shift)}, "absolute")["t5"]
    assert sentence("t5", "absolute", found) == (
        "t5 was better than absolute by 0.100 nats in each of 5 seeds, too few to claim it (p = 0.062); 6 such seeds "
        "would do; losses that were trained never differ so evenly"
        if shift
        else "t5 and absolute were equal in each of 5 seeds"
    )


# Shares, which end at 0 and 1


def exact(group: list[float], baseline: list[float], others: int = 0) -> tuple[Difference, str]:
    """others: groups beside it that are compared as well."""
    values = {"absolute": by_seed(baseline), "t5": by_seed(group)}
    values |= {f"other_{n}": by_seed(baseline) for n in range(others)}
    found = differences(values, "absolute", proportion=True)["t5"]
    return found, sentence("t5", "absolute", found, metric=EXACT)


def test_seeds_that_all_agree_are_no_certainty() -> None:
    assert exact([1.0] * 4, [0.0] * 4, others=9)[1] == (
        "t5 was better than absolute by 1.00 of the examples in each of 4 seeds, too few to claim it (p = 0.078); "
        "5 such seeds would do"
    )
    assert exact([1.0] * 6, [0.0] * 6)[1] == (
        "t5 is better than absolute by 1.00 of the examples, at least 0.47 and at most 1.00, n = 6"
    )
    assert exact([0.0] * 6, [1.0] * 6)[1].startswith("t5 is worse than absolute by 1.00 of the examples, at least 0.47")
    assert exact([1.0] * 6, [1.0] * 6)[1] == "t5 and absolute were equal in each of 6 seeds"
    assert exact([1.0], [0.0])[1].startswith(
        "t5 was 1.00 of the examples better than absolute in one run each; one run"
    )


@pytest.mark.parametrize("others", [9, 18, 150])
def test_the_seeds_that_would_do_are_enough_and_no_fewer_are(others: int) -> None:
    said = exact([1.0] * 4, [0.0] * 4, others)[1]
    needed = int(re.search(r"(\d+) such seeds would do", said)[1])
    assert exact([1.0] * needed, [0.0] * needed, others)[0].significant
    assert not exact([1.0] * (needed - 1), [0.0] * (needed - 1), others)[0].significant


def test_where_the_exact_test_shows_nothing_though_the_interval_excludes_0() -> None:
    _, said = exact([0.8, 0.78, 0.77], [0.2, 0.21, 0.2])
    assert "no difference between t5 and absolute can be shown with n = 3 (0.58 of the examples [0.54, 0.62])" in said
    assert "the interval excludes 0, but p = 0.2 by the exact test and Holm's correction" in said
    assert said.endswith("about 5 seeds would be needed to see 0.1")


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=3, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_shares_in_words(pairs: list[tuple[int, int]]) -> None:
    """The words go with the sign."""
    found, said = exact(*([number / 8 for number in column] for column in zip(*pairs, strict=True)))
    assert found.significant == ("is better" in said or "is worse" in said)
    assert ("better" in said) == (found.mean > 0 and (found.significant or found.sd == 0))


def test_the_usual_effect_goes_with_the_metric() -> None:
    assert exact([0.5, 0.6, 0.4], [0.45, 0.6, 0.5])[1].endswith("see 0.1")
    losses = {"absolute": by_seed([4.0, 4.2, 4.1]), "t5": by_seed([4.1, 4.0, 4.1])}
    assert sentence("t5", "absolute", differences(losses, "absolute")["t5"]).endswith("see 0.02")
