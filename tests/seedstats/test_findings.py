"""Findings and their words claim no more than the numbers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import by_seed, differences

from poslab.metric import EXACT, Metric, loss_metric
from seedstats.statistics.best import BestSet
from seedstats.finding import AllAlike, Equal, Incomplete, finding, p_text
from seedstats.statistics.intervals import Estimate, Interval, StudentT
from seedstats.statistics.outcomes import SeedOutcomes
from seedstats.statistics.paired import Difference
from seedstats.statistics.power import plan_seeds
from seedstats.remarks import (
    best_sentence,
    checkpoints_sentence,
    convergence_remarks,
    looks_sentence,
    lost_sentence,
    summary,
    text_remark,
    unfailed_sentence,
)

NATS = loss_metric(None)


def sentence(first: str, second: str, found: Difference, effect: float | None = None, measure: Metric = NATS) -> str:
    return str(finding(first, second, found, measure, effect))


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
    elif isinstance(finding("t5", "absolute", found, NATS), Equal):
        assert said.startswith("t5 and absolute are equal within 0.02 nats (")
        assert abs(found.mean) < 0.02
    else:
        assert said.startswith("no difference between t5 and absolute can be shown")
        assert ("excludes 0, but" in said) == excludes_0
        low, high = (float(x) for x in re.search(r"\[(.*), (.*)\]", said).groups())
        assert (not low <= 0 <= high) == excludes_0
        assert "-0.000," not in said


def difference(mean=None, low=None, high=None, sd=None, p_value=None, n=5, **more) -> Difference:
    return Difference(mean, None if low is None else Interval(low, high), sd, p_value, n, **more)


LOST = SeedOutcomes(5, missing=(4, 5))
DIVERGED = SeedOutcomes(5, diverged=(1, 0), differences=(-0.1, -0.1, -0.1, -0.1, np.inf))


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
            difference(0.08, 0.0, 0.18, 0.024, 0.03, comparisons=4),
            "t5 is worse than absolute by 0.080 nats, more than 0 and at most 0.180, n = 5",
        ),
        (
            difference(0.003, -0.004, 0.01, 0.006, 0.3, method=StudentT(0.0025, 4)),
            "t5 and absolute are equal within 0.02 nats (0.003 nats [-0.004, 0.010], n = 5)",
        ),
        (
            difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3),
            "no difference between t5 and absolute can be shown with n = 3 (0.010 nats [-0.030, 0.050]); "
            "to show one of 0.02, plan with 25 seeds (4 to 203, by what 3 tell of the spread)",
        ),
        (
            difference(-0.00001, -0.008, 0.008, 0.009, 0.99, n=8),
            "no difference between t5 and absolute can be shown with n = 8 (0.000 nats [-0.008, 0.008]); "
            "a difference of 0.02 would probably have been seen",
        ),
        (
            difference(0.013, -0.001, 0.027, 0.012, 0.06, n=8),
            "no difference between t5 and absolute can be shown with n = 8 (0.013 nats [-0.001, 0.027]); "
            "8 seeds usually show a difference of 0.02, yet the interval does not exclude it",
        ),
        (
            difference(0.03, -0.01, 0.07, 0.016, 0.0632, comparisons=4),
            "no difference between t5 and absolute can be shown with n = 5 (0.030 nats [-0.010, 0.070] for 4 "
            "comparisons at once); to show one of 0.02, plan with 21 seeds (6 to 63, by what 5 tell of the spread)",
        ),
        (
            difference(0.01, -0.9, 0.9, 0.5, 0.9, n=3),
            "no difference between t5 and absolute can be shown with n = 3 (0.010 nats [-0.900, 0.900]); "
            "to show one of 0.02, plan with 21,986 seeds (1,332 or more, by what 3 tell of the spread)",
        ),
        (
            difference(0.0, -900, 900, 100.0, 1.0, n=3),
            "no difference between t5 and absolute can be shown with n = 3 (0.000 nats [-900.000, 900.000]); "
            "100,000 seeds or more would be needed to see 0.02",
        ),
        (
            difference(-0.113, n=2, sd=0.001),
            "t5 was better than absolute by 0.113 nats in the mean of 2 seeds; to claim a difference takes 3 or more",
        ),
        (
            difference(-0.05, n=1),
            "t5 was better than absolute by 0.050 nats in one run each; one run says nothing about chance",
        ),
        (difference(0.0, n=1), "t5 and absolute were equal in one run each; one run says nothing about chance"),
        (difference(n=0), "t5 and absolute have no seed in common"),
        (
            difference(-0.1, -0.15, -0.05, 0.01, None, n=3, outcomes=LOST),
            "no difference between t5 and absolute can be shown: 2 of 5 seeds are missing (4, 5); so far -0.100 nats "
            "[-0.150, -0.050], n = 3",
        ),
        (
            difference(-0.1, -0.15, -0.05, 0.01, 0.375, n=4, outcomes=DIVERGED),
            "no difference between t5 and absolute can be shown: of t5, 1 of 5 seeds diverged; in the others "
            "-0.100 nats [-0.150, -0.050], n = 4",
        ),
    ],
)
def test_each_kind_of_finding_in_words(found: Difference, said: str) -> None:
    assert sentence("t5", "absolute", found) == said


@pytest.mark.parametrize("outcomes", [LOST, DIVERGED, SeedOutcomes(5, unsettled="the baseline is lost")])
def test_what_is_incomplete_is_never_equal(outcomes: SeedOutcomes) -> None:
    alike = difference(0.0001, -0.001, 0.001, 0.001, 0.9, outcomes=outcomes, method=StudentT(0.0002, 4))
    assert isinstance(finding("t5", "absolute", alike, NATS), Incomplete)


def test_sentence_names_the_effect_it_is_given() -> None:
    found = difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3)
    plan = plan_seeds(0.0161, 3, 0.005)
    assert sentence("t5", "absolute", found, effect=0.005).endswith(
        f"to show one of 0.005, plan with {plan.assured} seeds ({plan.low} to {plan.high:,}, "
        "by what 3 tell of the spread)"
    )
    equal = difference(0.003, -0.004, 0.01, 0.006, 0.3, method=StudentT(0.0025, 4))
    assert sentence("t5", "absolute", equal, effect=0.015).startswith("t5 and absolute are equal within 0.015 nats (")
    assert not isinstance(finding("t5", "absolute", equal, NATS, effect=0.004), Equal)


def test_remarks_stand_behind_the_claim() -> None:
    shown = finding("t5", "absolute", difference(-0.08, -0.11, -0.05, 0.024, 0.001), NATS, remarks=["one", "two"])
    assert str(shown) == f"{shown.claim}; one; two"


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
    return found, sentence("t5", "absolute", found, measure=EXACT)


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
        "t5 was better than absolute by 1.00 of the examples in one run each; one run"
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
    assert said.endswith("to show one of 0.1, plan with 5 seeds (5 to 12, by what 3 tell of the spread)")


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=3, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_shares_in_words(pairs: list[tuple[int, int]]) -> None:
    """The words go with the sign."""
    found, said = exact(*([number / 8 for number in column] for column in zip(*pairs, strict=True)))
    assert found.significant == ("is better" in said or "is worse" in said)
    assert ("better" in said) == (found.mean > 0 and (found.significant or found.sd == 0))


def test_what_has_another_unit_has_no_usual_effect() -> None:
    found = difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3)
    other = Metric("speed", "tokens per second", higher_is_better=True)
    assert sentence("t5", "absolute", found, measure=other).endswith(
        "; with effect=NUMBER, a difference that matters, this says how many seeds would show it"
    )


# Of all groups


def test_a_line_for_each_kind_of_finding() -> None:
    better, worse = difference(-0.08, -0.11, -0.05, 0.024, 0.001), difference(0.08, 0.05, 0.11, 0.024, 0.001)
    equal = difference(0.003, -0.004, 0.01, 0.006, 0.3, method=StudentT(0.0025, 4))
    unclear, lost = difference(0.03, -0.1, 0.1, 0.1, 0.5), difference(-0.1, -0.15, -0.05, 0.01, None, outcomes=LOST)
    few = difference(-0.1, None, None, 0.0, 0.0625)
    of_labels = {"a": better, "b": unclear, "c": equal, "d": worse, "e": better, "f": lost, "g": few}
    findings = {label: finding(label, "absolute", d, NATS) for label, d in of_labels.items()}
    assert isinstance(findings["g"], AllAlike)
    assert summary(findings, "absolute") == [
        "each is better than absolute: a, e (2 of 7)",
        "each is worse than absolute: d (1 of 7)",
        "equal to absolute within 0.02 nats: c (1 of 7)",
        "no difference from absolute can be shown of: b, f (2 of 7)",
        "better than absolute in every seed, too few to claim it: g (1 of 7)",
        "seeds missing or diverged: f",
    ]


def test_the_best_set_in_words() -> None:
    best = BestSet(("t5", "rope"), {"t5": 1.0, "rope": 0.4, "nope": 0.001}, 0.95)
    assert best_sentence(best, ["nope"]) == "best: one of t5, rope (95 % sure); not nope"
    assert best_sentence(best, []) == "best: not known, any of t5, rope may be"
    one = BestSet(("t5",), {}, 1 - 0.05 / 3)
    assert best_sentence(one, ["rope"]) == "best: t5 (98.33 % sure)"
    left = "best: t5 (98.33 % sure); left out: nope, of which a seed diverged"
    assert best_sentence(one, ["rope"], untested=["nope"]) == left


def test_what_no_test_of_these_seeds_knows() -> None:
    assert unfailed_sentence(5).startswith("none of the 5 seeds of each scheme failed, yet up to 45 % of")
    assert lost_sentence("t5", 0, 0) == "t5 has no such figure"
    assert lost_sentence("t5", 5, 2) == "t5 has no finished run: 2 of 5 seeds diverged, 3 of 5 seeds are missing"
    assert lost_sentence("t5", 5, 5) == "t5 has no finished run: 5 of 5 seeds diverged"
    assert looks_sentence([3, 5]).startswith("further seeds were planned after a comparison of 3 seeds, then 5 seeds: ")
    assert looks_sentence([3, 5]).endswith("corrected for 3 looks")


# Other text


@pytest.mark.parametrize(
    ("over_text", "words"),
    [
        (difference(-0.08, -0.12, -0.04, 0.01, 0.01), "and held-out text of this corpus: [0.040, 0.120]"),
        (difference(-0.08, -0.2, 0.04, 0.06, 0.2), "on this text; not shown for other text: [-0.040, 0.200]"),
        (difference(0.08, 0.04, 0.12, 0.01, 0.01), "on this text; not shown for other text: [-0.120, -0.040]"),
    ],
)
def test_a_claim_says_for_which_text_it_holds(over_text: Difference, words: str) -> None:
    """What is shown for other text in the other direction is not shown."""
    over_seeds = difference(-0.08, -0.11, -0.05, 0.024, 0.001)
    assert text_remark(over_seeds, over_text) == f"it holds for other seeds {words} over seeds and text"


@pytest.mark.parametrize(
    ("low", "high", "mean", "verdict"),
    [
        (-0.15, -0.05, -0.1, "differ: t5's is better by 0.100 nats [0.050, 0.150]; another seed may reverse this"),
        (0.05, 0.15, 0.1, "differ: t5's is worse by 0.100 nats [0.050, 0.150]; another seed may reverse this"),
        (-0.15, 0.05, -0.1, "can't be told apart: -0.050 nats [-0.150, +0.050]; another seed may reverse this"),
        (-0.15, -0.05, 0.1, "differ in the other direction (-0.100 nats): these two runs can't be told apart"),
    ],
)
def test_two_checkpoints_in_words(low: float, high: float, mean: float, verdict: str) -> None:
    d = Estimate((low + high) / 2, Interval(low, high), 0.2, 40)
    whose = "stretches of the test text, the checkpoints of t5 and absolute"
    assert checkpoints_sentence("t5", "absolute", d, mean, "test") == f"on 40 {whose} {verdict}"
    assert "validation text, which chose them, the" in checkpoints_sentence("t5", "absolute", d, mean, "validation")


# Runs that are hardly trained

UNTRAINED = {"uniform": 7.3, "unigram": 6.1, "bigram": 5.4}
SMALL = difference(-0.2, -0.25, -0.15, 0.03, 0.001)


@pytest.mark.parametrize(
    ("absolute", "t5", "remarks"),
    [
        (5.3, 5.1, []),
        (5.5, 5.1, ["absolute's loss is above that of counting pairs of tokens (5.4000): hardly trained"]),
        (7.1, 5.5, ["both losses are above that of counting pairs of tokens (5.4000): hardly trained"]),
        (7.1, 7.0, ["both losses are above that of counting single tokens (6.1000): hardly trained"]),
    ],
)
def test_losses_above_those_of_counting(absolute: float, t5: float, remarks: list[str]) -> None:
    losses = {"t5": t5, "absolute": absolute}
    assert convergence_remarks(SMALL, losses, UNTRAINED, dict.fromkeys(losses, 0.0)) == remarks
    assert convergence_remarks(SMALL, losses, {}, dict.fromkeys(losses, 0.0)) == []


@pytest.mark.parametrize(
    ("d", "falls", "remarks"),
    [
        (SMALL, (0.3, 0.3), ["t5's (by 0.3) and absolute's (by 0.3) losses still fell"]),
        (SMALL, (0.3, 0.1), ["t5's (by 0.3) loss still fell"]),
        (SMALL, (0.1, 0.1), []),
        (difference(0.01, -0.1, 0.1, 0.1, 0.9), (0.3, 0.3), []),
    ],
)
def test_losses_that_still_fall_by_more_than_is_claimed(
    d: Difference, falls: tuple[float, float], remarks: list[str]
) -> None:
    pair = ("t5", "absolute")
    expected = [f"{remark} by more than that in the last tenth of the steps" for remark in remarks]
    losses = dict(zip(pair, (5.1, 5.3), strict=True))
    assert convergence_remarks(d, losses, UNTRAINED, dict(zip(pair, falls, strict=True))) == expected
