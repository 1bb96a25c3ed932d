"""Runs that are missing or diverged: each is said; one that diverged makes no claim that was not there before."""

import math
from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import differences
from scipy import stats
from tables import compared, losses, rows, said

from seedstats.answers import caveats
from seedstats.finding import finding
from seedstats.metric import Metric
from seedstats.section import Section
from seedstats.statistics.paired import Difference

SEEDS = range(1, 9)
NATS = Metric("loss", "nats per token")
EXACT = Metric("exact", "of the examples", higher_is_better=True)
Values = dict[str, dict[int, float]]


def sentence(first: str, second: str, difference: Difference, metric: Metric = NATS) -> str:
    return str(finding(first, second, difference, metric))


def claims(values: Values, planned: Mapping[str, range] | None = None, family: int = 0) -> set[tuple[str, bool]]:
    """(group, whether it is lower than the baseline) of each claim."""
    found = differences(values, "base", planned=planned, family=family)
    return {(name, d.leaning < 0) for name, d in found.items() if d.significant}


def simulated(seed: int, effects: Mapping[str, float], seeds: range = SEEDS, heavy: bool = False) -> Values:
    """Differences of 0.01 nats and more stand out, with heavy tails not always."""
    generator = np.random.default_rng(seed)
    of_seed = generator.normal(4, 0.1, len(seeds))
    draw = (lambda n: generator.standard_t(2, n)) if heavy else generator.standard_normal
    of_groups = {name: of_seed + effect + 0.01 * draw(len(seeds)) for name, effect in effects.items()}
    return {name: dict(zip(seeds, map(float, losses), strict=True)) for name, losses in of_groups.items()}


EFFECTS = {"base": 0.0, "much": -0.05, "little": -0.012, "none": 0.0, "worse": 0.012}


def test_missing_seeds_leave_the_comparison_of_the_others() -> None:
    """Which is that of the seeds that both have, as if no other had been planned."""
    values = simulated(1, EFFECTS)
    left = values | {"much": {seed: x for seed, x in values["much"].items() if seed not in (2, 5)}}
    found = differences(left, "base", planned=dict.fromkeys(left, SEEDS))["much"]
    common = np.array([[values[name][seed] for seed in left["much"]] for name in ("much", "base")])
    assert found.n == 6
    assert found.outcomes.missing == (2, 5)
    assert found.mean == pytest.approx((common[0] - common[1]).mean())
    assert found.p_value <= 4 * stats.ttest_rel(*common).pvalue * 1.001
    assert ("much", True) in claims(left, dict.fromkeys(left, SEEDS))


def test_missing_seeds_at_random_claim_no_more_than_promised_and_nearly_as_much() -> None:
    """A tenth of the rows: power at 2 sd and ten seeds, and false claims on pages of equal names."""
    count, generator, found = 150, np.random.default_rng(3), {0.0: 0, 2.0: 0}
    for _, effect in product(range(count), found):
        values = {name: dict(enumerate(generator.normal(0, 1, 10).tolist())) for name in "abcd"}
        values["b"] = {seed: x - effect for seed, x in values["b"].items()}
        for of_name in values.values():
            for seed in range(10):
                if generator.random() < 0.1:
                    del of_name[seed]
        tested = differences(values, "a", planned=dict.fromkeys(values, range(10)))
        found[effect] += tested["b"].significant if effect else any(d.significant for d in tested.values())
    assert found[2.0] >= 0.65 * count  # 77 % of 4,000 such pages
    assert found[0.0] <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(sorted(set(EFFECTS) - {"base"})),
    st.sets(st.sampled_from(SEEDS), min_size=1),
)
def test_a_seed_that_diverges_makes_no_claim_for_its_group_nor_on_others(
    seed: int, heavy: bool, name: str, diverged: set[int]
) -> None:
    values = simulated(seed, EFFECTS, heavy=heavy)
    after = values | {name: values[name] | dict.fromkeys(diverged, math.inf)}
    assert claims(after) - {(name, False)} <= claims(values)


def test_survivors_alone_claim_nothing() -> None:
    """Three seeds that are clearly better, and one that diverged."""
    values = simulated(1, {"base": 0.0, "shaw": -0.21}, range(1, 5))
    values["shaw"][4] = math.inf
    d = differences(values, "base")["shaw"]
    assert (d.n, d.significant, d.p_value) == (3, False, 14 / 16)


def test_a_group_that_diverges_often_is_worse() -> None:
    values = simulated(1, {"base": 0.0, "shaw": -0.02})
    values["shaw"] |= dict.fromkeys(SEEDS, math.inf)
    d = differences(values, "base")["shaw"]
    assert (d.mean, d.n, d.p_value) == (None, 0, 2 / 2**8)
    assert sentence("shaw", "base", d) == "shaw is worse than base: 8 of 8 seeds of shaw diverged."
    assert sentence("base", "shaw", d.reversed) == "base is better than shaw: 8 of 8 seeds of shaw diverged."
    shares = {"base": dict.fromkeys(SEEDS, 0.0), "shaw": dict.fromkeys(SEEDS, -math.inf)}
    assert sentence("shaw", "base", differences(shares, "base", proportion=True)["shaw"], metric=EXACT).startswith(
        "shaw is worse"
    )


def test_holm_s_family_is_the_planned_one() -> None:
    """Where runs of another scheme are damaged, p = 0.03 of two comparisons does not become that of one."""
    values = simulated(3, {"base": 0.0, "t5": 0.0, "shaw": 0.0})
    values["t5"] = {seed: values["base"][seed] + (1 if seed % 2 else -1) * 0.01 - 0.0103 for seed in SEEDS}
    both = differences(values, "base")["t5"]
    alone = differences({name: values[name] for name in ("base", "t5")}, "base")["t5"]
    assert alone.p_value < 0.05 < both.p_value
    lost = {"base": values["base"], "t5": values["t5"], "shaw": {1: values["shaw"][1]}}
    assert differences(lost, "base", planned={"shaw": SEEDS})["t5"].p_value == pytest.approx(2 * alone.p_value)
    assert differences({k: lost[k] for k in ("base", "t5")}, "base", family=2)["t5"].p_value == 2 * alone.p_value


def test_simulated_false_claims_with_diverged_seeds() -> None:
    """Of equal schemes, each of whose runs diverges with the same chance, at most 5 % are claimed to differ."""
    generator, false, count = np.random.default_rng(7), 0, 200
    for repetition in range(count):
        values = simulated(repetition, {"base": 0.0, "other": 0.0}, range(1, 11))
        for of_group in values.values():
            of_group |= {seed: math.inf for seed in of_group if generator.random() < 0.2}
        false += bool(claims(values))
    assert false <= count * 0.05 + 2 * (count * 0.05 * 0.95) ** 0.5


# Tables


def test_missing_seeds_are_said_beside_the_claim() -> None:
    """Also those that no group has, if they have a row; those that were never planned are none."""
    values = losses(absolute=0.0, shaw=0.0, t5=-0.1)
    less = values | {"t5": {seed: values["t5"][seed] for seed in (1, 2, 3)}}
    one = compared(rows(less))
    text = said(one)[0]
    assert text.startswith("t5 is better than absolute: 0.1")
    assert text.endswith("2 of 5 planned seeds are missing (4, 5).")
    assert one.differences["shaw"].comparisons == 2
    planned = rows({"t5": {4: None, 5: None}}).assign(status="unplanned")
    assert "missing" not in said(compared(rows(less), planned))[0]
    gone = rows({name: {6: None} for name in values})
    assert all("1 of 6 planned seeds is missing (6)." in text for text in said(compared(rows(values), gone)))


def test_comparing_before_all_seeds_are_there_is_called_a_look() -> None:
    values = losses(absolute=0.0, t5=-0.1)
    (caveat,) = caveats(compared(rows(values | {"t5": {seed: values["t5"][seed] for seed in (1, 2, 3)}})))
    assert "looks=2" in caveat
    assert caveats(compared(rows(values))) == []


def test_a_group_without_a_finished_run_is_counted_and_listed() -> None:
    values = losses(absolute=0.0, shaw=0.0, t5=-0.1)
    for value, words in ((None, "0 (5 missing)"), (math.inf, "0 (5 diverged)")):
        one = compared(rows(values | {"t5": dict.fromkeys(range(1, 6), value)}))
        assert (one.planned.lost, one.comparisons) == (["t5"], 2)
        assert Section("text", one).table.foot[0][:3] == ["t5", words, "n/a"]


def test_a_lost_baseline_leaves_no_other_to_claim_by() -> None:
    values = losses(absolute=0.0, shaw=0.0, t5=-0.1) | {"absolute": dict.fromkeys(range(1, 6))}
    text = said(compared(rows(values)))[0]
    why = "the baseline would be absolute, which has no finished run"
    assert text.startswith(f"No difference between t5 and shaw is shown: {why}; so far -0.1")
    assert said(compared(rows(values), baseline="shaw"))[0].startswith("t5 is better than shaw: 0.1")
    assert said(compared(rows(values), pairs="all"))[0].startswith("t5 is better than shaw: 0.1")


def test_a_group_of_which_a_seed_diverged_stands_last() -> None:
    values = losses(absolute=0.0, shaw=0.0, t5=-0.1)
    one = compared(rows(values | {"t5": values["t5"] | {3: math.nan}}))
    assert any("1 of 5 seeds of t5 diverged; in the others -0.1" in text for text in said(one))
    assert [row[:2] for row in Section("text", one).table.rows][-1] == ["t5", "4 (1 diverged)"]
