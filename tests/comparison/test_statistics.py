"""Comparisons of runs: against numbers worked out by hand or by scipy, and on simulated sweeps whose truth is known."""

import itertools
import math
import re
import tracemalloc
import warnings
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from poslab.comparison.sentences import p_text, sentence
from poslab.comparison.statistics import (
    MOST_FLIPPED,
    SMALLEST_BLOCKS,
    Difference,
    Interval,
    differences,
    estimate,
    holm,
    sign_flip_test,
    token_difference,
)
from poslab.tasks.metric import EXACT


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Degenerate inputs must be dealt with before scipy or numpy complain."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def by_seed(losses: Iterable[float]) -> dict[int, float]:
    return dict(enumerate(losses))


# Estimates


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


# Differences


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


@pytest.mark.parametrize("seeds", [2, 5, 6])
@pytest.mark.parametrize("shift", [0.0, 0.1, -1e-3])
def test_a_constant_difference_is_no_certainty(seeds: int, shift: float) -> None:
    """The limit of the t test would be p = 0; figures that were edited differ so, trained ones never do."""
    baseline = 4 + np.random.default_rng(3).random(seeds)
    # Adding and taking away 0.1 leaves rounding, which must not count as variance.
    found = differences({"absolute": by_seed(baseline), "t5": by_seed(baseline + shift)}, "absolute")["t5"]
    assert found.mean == pytest.approx(shift)
    assert (found.interval, found.sd) == (None, 0)
    assert found.p_value == (2 / 2**seeds if shift else 1)
    said = sentence("t5", "absolute", found)
    if shift:
        assert said.endswith("; losses that were trained never differ so evenly")
        assert ("too few to claim it" in said) == (seeds < 6)
    else:
        assert said == f"t5 and absolute were equal in each of {seeds} seeds"


def test_p_values_are_never_printed_as_certainty() -> None:
    assert [p_text(p) for p in (0.0, 1e-300, 2e-5, 0.0632, 1.0)] == [
        "1e-06 or less", "1e-06 or less", "2e-05", "0.063", "1",
    ]  # fmt: skip


@given(
    a=st.lists(st.floats(-100, 100), min_size=2, max_size=6),
    b=st.lists(st.floats(-100, 100), min_size=2, max_size=6),
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
        assert excludes_0
        assert ("better" if found.mean < 0 else "worse") in said
        mean, low, high, _ = (float(x) for x in re.findall(r"-?\d+\.?\d*", said.removeprefix("t5")))
        assert 0 < low <= mean <= high
    else:
        assert said.startswith("no difference between t5 and absolute can be shown")
        assert ("excludes 0, but" in said) == excludes_0
        low, high = (float(x) for x in re.search(r"\[(.*), (.*)\]", said).groups())
        assert (not low <= 0 <= high) == excludes_0
        assert "-0.000," not in said


# Sentences


def difference(mean=None, low=None, high=None, sd=None, p_value=None, n=5, **more) -> Difference:
    return Difference(mean, low and Interval(low, high), sd, p_value, n, **more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            difference(-0.08, -0.11, -0.05, 0.024, 0.001),
            "t5 is better than absolute by 0.080 nats [0.050, 0.110], n = 5",
        ),
        (difference(0.08, 0.05, 0.11, 0.024, 0.001), "t5 is worse than absolute by 0.080 nats [0.050, 0.110], n = 5"),
        (
            difference(-0.0012, -0.0021, -0.0003, 0.001, 0.02),
            "t5 is better than absolute by 0.0012 nats [0.0003, 0.0021], n = 5",
        ),
        (difference(-1.25, -2, -0.5, 0.6, 0.04), "t5 is better than absolute by 1.250 nats [0.500, 2.000], n = 5"),
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
            difference(0.03, 0.01, 0.05, 0.016, 0.0632, comparisons=4),
            "no difference between t5 and absolute can be shown with n = 5 (0.030 nats [0.010, 0.050]); "
            "the interval excludes 0, but p = 0.063 after Holm's correction; "
            "about 11 seeds would be needed to see 0.02",
        ),
        (
            difference(0.0, -900, 900, 100.0, 1.0, n=2),
            "no difference between t5 and absolute can be shown with n = 2 (0.000 nats [-900.000, 900.000]); "
            "100,000 seeds or more would be needed to see 0.02",
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


# Tokens


def correlated(generator: np.random.Generator, rows: int, tokens: int) -> np.ndarray:
    """Moving averages of skewed noise over 8 tokens: mean 0, sd 1, correlated over distances up to 7."""
    noise = generator.exponential(1, (rows, tokens + 7)) - 1
    return sum(noise[:, i : i + tokens] for i in range(8)) / math.sqrt(8)


def test_token_interval_covers_the_truth() -> None:
    """Also where neighbouring tokens are alike, and where single tokens as blocks would not do."""
    generator = np.random.default_rng(7)
    rows, tokens = 200, 3_205
    noise = correlated(generator, rows, tokens)
    second = generator.exponential(3, tokens)

    def coverage(block: int, rows: int) -> float:
        found = [token_difference(second + 0.3 + row, second, block=block, resamples=200) for row in noise[:rows]]
        return sum(f.interval.low <= 0.3 <= f.interval.high for f in found) / rows

    # 3 standard errors are 4.6 %; blocks of 16 miss a little of the correlation, so that 92 % are expected.
    blocks, single_tokens = coverage(16, rows), coverage(1, 100)
    assert 0.87 < blocks < 0.98
    assert single_tokens < 0.75


def test_token_interval_worked_out() -> None:
    """Without correlation: about mean +- 1.96 sd / sqrt(n)."""
    generator = np.random.default_rng(8)
    first, second = generator.normal(3, 1, (2, 20_000))
    found = token_difference(first, second, resamples=4000)
    assert found.mean == pytest.approx((first - second).mean())
    assert found.sd == pytest.approx((first - second).std(ddof=1))
    assert found.n == 20_000
    half = 1.96 * math.sqrt(2 / 20_000)
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(half, rel=0.06)
    assert (found.interval.high + found.interval.low) / 2 == pytest.approx(found.mean, abs=0.06 * half)


def test_token_interval_repeats() -> None:
    first, second = np.random.default_rng(9).normal(3, 1, (2, 1000))
    np.random.seed(1)
    once = token_difference(first, second)
    np.random.seed(2)
    assert token_difference(first, second) == once


def test_blocks_of_unequal_lengths_keep_the_mean() -> None:
    """A constant difference has no spread, whatever the number of tokens."""
    for tokens in (SMALLEST_BLOCKS * 16, SMALLEST_BLOCKS * 16 + 15, 1009):
        found = token_difference(np.full(tokens, 4.5), np.full(tokens, 4.0), resamples=100)
        assert (found.mean, found.interval, found.sd) == (0.5, (0.5, 0.5), 0.0)


def test_longest_texts_within_memory() -> None:
    first, second = np.random.default_rng(10).normal(3, 1, (2, 100_000))
    tracemalloc.start()
    found = token_difference(first, second)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.interval.low < found.mean < found.interval.high
    assert peak < 100e6, f"{peak / 1e6:.0f} MB"


def test_too_few_tokens_for_an_interval() -> None:
    one = token_difference([2.0], [1.5])
    assert (one.mean, one.interval, one.sd, one.n) == (0.5, None, None, 1)
    few = token_difference(np.arange(SMALLEST_BLOCKS * 16 - 1.0), np.zeros(SMALLEST_BLOCKS * 16 - 1))
    assert few.interval is None
    assert few.sd > 0


# Shares, which end at 0 and 1


def exact(group: list[float], baseline: list[float], others: int = 0) -> tuple[Difference, str]:
    """others: groups beside it that are compared as well."""
    values = {"absolute": by_seed(baseline), "t5": by_seed(group)}
    values |= {f"other_{n}": by_seed(baseline) for n in range(others)}
    found = differences(values, "absolute", EXACT)["t5"]
    return found, sentence("t5", "absolute", found, metric=EXACT)


def test_sign_flips_worked_by_hand() -> None:
    # Of the 8 ways to choose the signs of 1, 2, 4 only +++ and --- give a mean as far from 0; of -1, 2, 4 also ++-
    # and so on do not, but +++ and --- do, and the sum 5 itself: 4 of 8.
    assert sign_flip_test([1, 2, 4]) == 2 / 8
    assert sign_flip_test([-1, 2, 4]) == 4 / 8
    assert sign_flip_test([1, 2, 4], "greater") == 1 / 8
    assert sign_flip_test([1, 2, 4], "less") == 1
    assert sign_flip_test([0, 0, 0]) == 1
    assert sign_flip_test([0, 0, 1]) == 1


@pytest.mark.parametrize("n", [4, MOST_FLIPPED])
def test_sign_flips_in_all_ways(n: int) -> None:
    differences_ = np.random.default_rng(n).normal(0.3, 1, n)
    sums = np.array(list(itertools.product((1, -1), repeat=n))) @ differences_
    assert sign_flip_test(differences_) == np.mean(abs(sums) >= abs(differences_.sum()) - 1e-12)
    assert sign_flip_test(differences_, "greater") == np.mean(sums >= differences_.sum() - 1e-12)


def test_of_many_seeds_ways_are_drawn() -> None:
    """The same ones each time."""
    differences_ = np.random.default_rng(1).normal(0.2, 1, 30)
    found = sign_flip_test(differences_)
    assert found == sign_flip_test(differences_)
    assert found == pytest.approx(stats.ttest_1samp(differences_, 0).pvalue, abs=0.03)


def test_seeds_that_all_agree_are_no_certainty() -> None:
    """The t test would say p = 0, or nothing; two runs that always come out alike may be luck."""
    found, said = exact([1.0] * 5, [0.0] * 5)
    assert (found.mean, found.sd, found.p_value, found.interval) == (1, 0, 2 / 32, None)
    assert said == (
        "t5 was better than absolute by 1.00 of the examples in each of 5 seeds, too few to claim it (p = 0.062); "
        "6 such seeds would do"
    )
    found, said = exact([1.0] * 6, [0.0] * 6)
    assert said == "t5 is better than absolute by 1.00 of the examples in each of 6 seeds"
    assert exact([0.0] * 6, [1.0] * 6)[1] == "t5 is worse than absolute by 1.00 of the examples in each of 6 seeds"
    assert exact([1.0] * 6, [1.0] * 6)[1] == "t5 and absolute were equal in each of 6 seeds"
    assert exact([1.0], [0.0])[1].startswith(
        "t5 was 1.00 of the examples better than absolute in one run each; one run"
    )


def test_the_seeds_that_would_do_are_enough_and_no_fewer_are() -> None:
    for others in (0, 1, 6, 18):
        said = exact([1.0] * 5, [0.0] * 5, others)[1]
        needed = int(re.search(r"(\d+) such seeds would do", said)[1])
        assert exact([1.0] * needed, [0.0] * needed, others)[0].significant
        assert not exact([1.0] * (needed - 1), [0.0] * (needed - 1), others)[0].significant


def test_nearly_equal_differences_claim_no_more_than_equal_ones() -> None:
    found, said = exact([1.0, 0.98, 0.97], [0.0, 0.01, 0.0])
    assert stats.ttest_rel([1.0, 0.98, 0.97], [0.0, 0.01, 0.0]).pvalue < 0.001
    assert found.p_value == 2 / 8
    assert "no difference between t5 and absolute can be shown with n = 3 (0.98 of the examples [0.94, 1.00])" in said
    assert "the interval excludes 0, but p = 0.25 by the exact test and Holm's correction" in said
    assert said.endswith("about 6 seeds would be needed to see 0.1")


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=2, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_shares_and_their_intervals(pairs: list[tuple[int, int]]) -> None:
    """An interval lies within what can be, and excludes 0 where a difference is claimed; the words go with the sign."""
    group, baseline = ([number / 8 for number in column] for column in zip(*pairs, strict=True))
    found, said = exact(group, baseline)
    assert found.p_value >= 2 / 2 ** len(pairs)
    if found.interval is None:
        assert found.sd == 0
    else:
        assert -1 <= found.interval.low <= found.mean <= found.interval.high <= 1
        assert not found.significant or found.interval.low * found.interval.high > 0
    assert found.significant == ("is better" in said or "is worse" in said)
    assert ("better" in said) == (found.mean > 0 and (found.significant or found.sd == 0))
    of_group = estimate(group, EXACT)
    assert of_group.interval is None if of_group.sd == 0 else 0 <= of_group.interval.low <= of_group.interval.high <= 1


def test_claims_of_shares_are_as_rare_as_promised() -> None:
    """Two schemes that learn the task with the same luck: one in two seeds has all right, the others none."""
    generator = np.random.default_rng(5)
    claims = sum(exact(*generator.integers(0, 2, (2, 6)).astype(float).tolist())[0].significant for _ in range(400))
    assert claims <= 0.05 * 400


def test_the_usual_effect_goes_with_the_metric() -> None:
    assert exact([0.5, 0.6, 0.4], [0.45, 0.6, 0.5])[1].endswith("see 0.1")
    nats = differences({"absolute": by_seed([4.0, 4.2]), "t5": by_seed([4.1, 4.0])}, "absolute")["t5"]
    assert sentence("t5", "absolute", nats).endswith("see 0.02")
