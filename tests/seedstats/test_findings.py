"""Findings and their words claim no more than the numbers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import by_seed, differences
from tables import compared, rows

from seedstats.answers import findings, lost_sentence, reference_caveats, summary
from seedstats.finding import finding, p_text
from seedstats.metric import Metric
from seedstats.statistics.intervals import Interval, StudentT
from seedstats.statistics.outcomes import SeedOutcomes
from seedstats.statistics.paired import Difference
from seedstats.statistics.power import plan_seeds

NATS = Metric("loss", "nats per token")
EXACT = Metric("exact", "of the examples", higher_is_better=True)


def sentence(found: Difference, effect: float | None = None, metric: Metric = NATS) -> str:
    return str(finding("t5", "absolute", found, metric, effect))


def test_p_values_are_never_printed_as_certainty() -> None:
    printed = ["1e-06 or less", "1e-06 or less", "2e-05", "0.063", "1"]
    assert [p_text(p) for p in (0.0, 1e-300, 2e-5, 0.0632, 1.0)] == printed


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
    said = sentence(found)
    assert "nan" not in said
    mean, low, high = map(float, re.search(r": (-?[\d.]+) nats \[(.*?), (.*?)\]", said).groups())
    if found.significant:
        assert excludes_0 or 0 in found.interval
        assert said.startswith(f"t5 is {'better' if found.mean < 0 else 'worse'} than absolute: ")
        assert 0 <= low <= mean <= high
    elif finding("t5", "absolute", found, NATS).kind == "equal":
        assert said.startswith("t5 and absolute are equal within 0.02 nats: ")
        assert abs(found.mean) < 0.02
    else:
        assert said.startswith("No difference between t5 and absolute is shown: ")
        assert ("excludes 0, but" in said) == excludes_0 == (not low <= 0 <= high)
        assert "-0.000," not in said


def difference(mean=None, low=None, high=None, sd=None, p_value=None, n=5, **more) -> Difference:
    return Difference(mean, None if low is None else Interval(low, high), sd, p_value, n, **more)


LOST = SeedOutcomes(5, missing=(4, 5))
DIVERGED = SeedOutcomes(5, diverged=(1, 0), differences=(-0.1, -0.1, -0.1, -0.1, np.inf))
BETTER, WORSE = difference(-0.08, -0.11, -0.05, 0.024, 0.001), difference(0.08, 0.05, 0.11, 0.024, 0.001)
EQUAL = difference(0.003, -0.004, 0.01, 0.006, 0.3, method=StudentT(0.0025, 4))
UNCLEAR = difference(0.01, -0.03, 0.05, 0.0161, 0.4, n=3)
NOT_SHOWN = "No difference between t5 and absolute is shown"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (BETTER, "t5 is better than absolute: 0.080 nats [0.050, 0.110], 5 seeds. This is more than the 0.02 nats that "
         "matters."),
        (WORSE, "t5 is worse than absolute: 0.080 nats [0.050, 0.110], 5 seeds. This is more than the 0.02 nats that "
         "matters."),
        (difference(-0.0012, -0.0021, -0.0003, 0.001, 0.02),
         "t5 is better than absolute: 0.0012 nats [0.0003, 0.0021], 5 seeds. A real difference, but smaller than the "
         "0.02 nats that matters."),
        (difference(0.08, 0.0, 0.18, 0.024, 0.03, comparisons=4),
         "t5 is worse than absolute: 0.080 nats [0.000, 0.180], 5 seeds. It may be less than the 0.02 nats that "
         "matters."),
        (EQUAL, "t5 and absolute are equal within 0.02 nats: 0.003 nats [-0.004, 0.010], 5 seeds."),
        (UNCLEAR, f"{NOT_SHOWN}: 0.010 nats [-0.030, 0.050], 3 seeds. "
        "To show a difference of 0.02, plan with 25 seeds (95 % limits 4 to 203)."),
        (difference(-0.00001, -0.008, 0.008, 0.009, 0.99, n=8),
         f"{NOT_SHOWN}: 0.000 nats [-0.008, 0.008], 8 seeds. A difference of 0.02 would probably have been seen."),
        (difference(0.013, -0.001, 0.027, 0.012, 0.06, n=8),
         f"{NOT_SHOWN}: 0.013 nats [-0.001, 0.027], 8 seeds. 8 seeds usually show a difference of 0.02, "
         "but this interval does not "
         "exclude it."),
        (difference(0.03, -0.01, 0.07, 0.016, 0.0632, comparisons=4),
         f"{NOT_SHOWN}: 0.030 nats [-0.010, 0.070], 5 seeds. "
         "To show a difference of 0.02, plan with 21 seeds (95 % limits 6 to 63)."),
        (difference(0.01, -0.9, 0.9, 0.5, 0.9, n=3),
         f"{NOT_SHOWN}: 0.0 nats [-0.9, 0.9], 3 seeds. "
         "To show a difference of 0.02, plan with 21,986 seeds (95 % limits 1,332 or more)."),
        (difference(0.0, -900, 900, 100.0, 1.0, n=3),
         f"{NOT_SHOWN}: 0 nats [-900, 900], 3 seeds. "
         "To show a difference of 0.02 would take 100,000 seeds or more."),
        (difference(-0.113, n=2, sd=0.001),
         "t5 was better than absolute: 0.113 nats in the mean of 2 seeds; to claim a difference takes 3 or more."),
        (difference(-0.05, n=1),
         "t5 was better than absolute: 0.050 nats in one run each; one run says nothing about chance."),
        (difference(0.0, n=1), "t5 and absolute were equal in one run each; one run says nothing about chance."),
        (difference(n=0), "t5 and absolute have no seed in common; runs that share nothing may be numbered alike."),
        (difference(-0.1, -0.15, -0.05, 0.01, 0.01, n=3, outcomes=LOST),
         "t5 is better than absolute: 0.100 nats [0.050, 0.150], 3 seeds. This is more than the 0.02 nats that "
         "matters. 2 of 5 planned seeds are missing (4, 5)."),
        (difference(-0.1, -0.15, -0.05, 0.01, 0.375, n=4, outcomes=DIVERGED),
         f"{NOT_SHOWN}: 1 of 5 seeds of t5 diverged; in the others -0.100 nats [-0.150, -0.050], 4 seeds."),
    ],
)  # fmt: skip
def test_each_kind_of_finding_in_words(found: Difference, said: str) -> None:
    assert sentence(found) == said


@pytest.mark.parametrize("outcomes", [DIVERGED, SeedOutcomes(5, unsettled="the baseline is lost")])
def test_what_is_in_doubt_is_never_equal(outcomes: SeedOutcomes) -> None:
    alike = difference(0.0001, -0.001, 0.001, 0.001, 0.9, outcomes=outcomes, method=StudentT(0.0002, 4))
    assert finding("t5", "absolute", alike, NATS).kind != "equal"


def test_what_matters_is_the_effect_that_is_given() -> None:
    plan = plan_seeds(0.0161, 3, 0.005)
    planned = (
        f"To show a difference of 0.005, plan with {plan.assured} seeds (95 % limits {plan.low} to {plan.high:,})."
    )
    assert sentence(UNCLEAR, effect=0.005).endswith(planned)
    assert sentence(EQUAL, effect=0.015).startswith("t5 and absolute are equal within 0.015 nats: ")
    assert finding("t5", "absolute", EQUAL, NATS, effect=0.004).kind != "equal"
    for effect, words in ((0.05, "This is more than"), (0.1, "It may be less than"), (0.2, "but smaller than")):
        assert sentence(BETTER, effect).endswith(f"{words} the {effect} nats that matters.")
    speed = Metric("speed", "tokens per second", higher_is_better=True)
    assert sentence(WORSE, metric=speed) == "t5 is better than absolute: 0.080 tokens [0.050, 0.110], 5 seeds."
    assert sentence(UNCLEAR, metric=speed).endswith(", 3 seeds.")  # nobody has said what matters


def test_a_condition_stands_last() -> None:
    shown = finding("t5", "absolute", BETTER, NATS, condition="it is so")
    assert str(shown) == f"{sentence(BETTER)} It is so."


@pytest.mark.parametrize("shift", [0.0, -0.1])
def test_losses_that_differ_alike_in_every_seed(shift: float) -> None:
    baseline = 4 + np.random.default_rng(3).random(5)
    found = differences({"absolute": by_seed(baseline), "t5": by_seed(baseline + shift)}, "absolute")["t5"]
    assert sentence(found) == (
        "t5 was better than absolute: 0.100 nats in each of 5 seeds, too few to claim it (p = 0.062); 6 such seeds "
        "would do. Losses of trained models never differ so evenly."
        if shift
        else "t5 and absolute were equal in each of 5 seeds."
    )


# Proportions, which end at 0 and 1


def exact(group: list[float], baseline: list[float], others: int = 0) -> tuple[Difference, str]:
    """others: groups beside it that are compared as well."""
    values = {"absolute": by_seed(baseline), "t5": by_seed(group)}
    values |= {f"other_{n}": by_seed(baseline) for n in range(others)}
    found = differences(values, "absolute", proportion=True)["t5"]
    return found, sentence(found, metric=EXACT)


@pytest.mark.parametrize(
    ("group", "baseline", "others", "said"),
    [
        ([1.0] * 4, [0.0] * 4, 9, "t5 was better than absolute: 1.00 of the examples in each of 4 seeds, too few to "
         "claim it (p = 0.078); 5 such seeds would do."),
        ([1.0] * 6, [0.0] * 6, 0, "t5 is better than absolute: 1.00 of the examples [0.47, 1.00], 6 seeds."),
        ([0.0] * 6, [1.0] * 6, 0, "t5 is worse than absolute: 1.00 of the examples [0.47, 1.00], 6 seeds."),
        ([1.0] * 6, [1.0] * 6, 0, "t5 and absolute were equal in each of 6 seeds."),
        ([1.0], [0.0], 0, "t5 was better than absolute: 1.00 of the examples in one run each; one run says nothing "
         "about chance."),
        ([0.8, 0.78, 0.77], [0.2, 0.21, 0.2], 0, f"{NOT_SHOWN}: 0.58 of the examples [0.54, 0.62], 3 seeds; the "
         "interval excludes 0, but the exact test gives p = 0.2. "
         "To show a difference of 0.1, plan with 5 seeds (95 % limits 5 to 12)."),
    ],
)  # fmt: skip
def test_seeds_that_all_agree_are_no_certainty(
    group: list[float], baseline: list[float], others: int, said: str
) -> None:
    assert exact(group, baseline, others)[1] == said


@pytest.mark.parametrize("others", [9, 18, 150])
def test_the_seeds_that_would_do_are_enough_and_no_fewer_are(others: int) -> None:
    needed = int(re.search(r"(\d+) such seeds would do", exact([1.0] * 4, [0.0] * 4, others)[1])[1])
    assert exact([1.0] * needed, [0.0] * needed, others)[0].significant
    assert not exact([1.0] * (needed - 1), [0.0] * (needed - 1), others)[0].significant


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=3, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_proportions_in_words(pairs: list[tuple[int, int]]) -> None:
    """The words go with the sign."""
    found, said = exact(*([number / 8 for number in column] for column in zip(*pairs, strict=True)))
    assert found.significant == ("is better" in said or "is worse" in said)
    assert ("better" in said) == (found.mean > 0 and (found.significant or found.sd == 0))


# Of all groups


def test_a_line_for_each_kind_of_finding() -> None:
    unclear, lost = difference(0.03, -0.1, 0.1, 0.1, 0.5), difference(-0.1, -0.15, -0.05, 0.01, 0.5, outcomes=DIVERGED)
    few = difference(-0.1, None, None, 0.0, 0.0625)
    of_labels = {"a": BETTER, "b": unclear, "c": EQUAL, "d": WORSE, "e": BETTER, "f": lost, "g": few}
    findings = {label: finding(label, "absolute", d, NATS) for label, d in of_labels.items()}
    assert findings["g"].kind == "alike"
    assert summary(findings, "absolute") == [
        "Better than absolute (2 of 7): a, e.",
        "Worse than absolute (1 of 7): d.",
        "Better than absolute in every seed, too few to claim it (1 of 7): g.",
        "Equal to absolute within 0.02 nats (1 of 7): c.",
        "No difference from absolute is shown (2 of 7): b, f.",
        "Seeds diverged: f.",
    ]


def test_what_no_test_of_these_seeds_knows() -> None:
    assert lost_sentence("t5", 0, 0) == "t5 has no such value"
    assert lost_sentence("t5", 5, 2) == "t5 has no finished run: 2 of 5 seeds diverged, 3 of 5 seeds are missing"
    assert lost_sentence("t5", 5, 5) == "t5 has no finished run: 5 of 5 seeds diverged"


@pytest.mark.parametrize(
    ("absolute", "t5", "caveats"),
    [
        (5.3, 5.1, []),
        (5.5, 5.1, ["absolute is not shown to be better than the bigram model (5.4000): hardly trained"]),
        (7.1, 5.5, ["absolute is not shown to be better than the unigram model (6.1000)",
                    "t5 is not shown to be better than the bigram model (5.4000): hardly trained"]),
        (7.1, 7.0, ["absolute, t5 are not shown to be better than the unigram model (6.1000)"]),
    ],
)  # fmt: skip
def test_groups_that_are_worse_than_references(absolute: float, t5: float, caveats: list[str]) -> None:
    """The easiest one that a group misses is named; for metrics in the other direction as well."""
    references, worse = {"bigram model": 5.4, "unigram model": 6.1}, {"bigram model": "hardly trained"}
    groups = {"absolute": absolute, "t5": t5}
    assert reference_caveats(groups, references, worse, NATS) == caveats
    less = [{name: -value for name, value in of.items()} for of in (groups, references)]
    turned = reference_caveats(*less, worse, Metric("score", higher_is_better=True))
    assert turned == [caveat.replace("(", "(-") for caveat in caveats]


def test_a_plan_takes_the_sd_that_was_tested() -> None:
    """Of three seeds, two names that are nearly alike by chance, among others that are not."""
    noise = np.random.default_rng(0).normal(0, 0.2, (3, 3))
    of = {"a": list(noise[0]), "b": list(noise[0] + [0.021, 0.019, 0.022]), "c": list(noise[1]), "d": list(noise[2])}
    one = compared(rows(of), baseline="a", effect=0.02)
    difference = one.differences["b"]
    assert difference.tested_sd > 10 * difference.sd
    (found,) = (text for text in findings(one) if "between b and a" in text)
    assert "To show a difference of 0.02, plan with" in found
