"""What a comparison says of values whose truth is known."""

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from paired_figures import differences
from refusals import refused
from scipy import stats
from tables import BASE, LOSS, SHARE, SHAW, compared, losses, reference, rows, said, table_of

import seedstats
from seedstats import BadSetting, BadTable
from seedstats.answers import caveats
from seedstats.metric import Metric, metric_of
from seedstats.pairs import matrix
from seedstats.section import Section
from seedstats.statistics.families import holm
from seedstats.table import checked


def test_a_known_difference_is_said() -> None:
    values = losses(absolute=0.0, shaw=-0.08, t5=0.12)
    one = compared(rows(values))
    found = differences(values, "absolute")["shaw"]
    low, high = found.interval
    assert low < -0.08 < high
    numbers = f"{-found.mean:.3f} nats [{-high:.3f}, {-low:.3f}], 5 seeds"
    assert said(one)[0] == f"shaw is better than absolute: {numbers}. This is more than the 0.02 nats that matters."
    assert said(one)[1].startswith("t5 is worse than absolute: 0.1")
    assert [group.label for group in one.groups] == ["shaw", "absolute", "t5"]
    assert {group.label: group.values for group in one.groups} == values


def test_where_there_is_no_difference_none_is_said() -> None:
    one = compared(rows(losses(noise=0.03, absolute=0.0, shaw=0.0, t5=0.0)))
    assert max(abs(d.mean) for d in one.differences.values()) > 0.002  # there is something to be taken in by
    assert sorted(text.partition(" is shown:")[0] for text in said(one)) == [
        f"No difference between {name} and absolute" for name in ("shaw", "t5")
    ]


def test_of_proportions_higher_is_better() -> None:
    one = compared(rows({"absolute": BASE, "shaw": SHAW}, SHARE, length=20))
    assert (one.metric.title, one.metric.label) == ("exact at 20", "exact at 20, share of the examples")
    assert [group.label for group in one.groups] == ["shaw", "absolute"]
    found = one.differences["shaw"]
    numbers = f"{found.mean:.2f} of the examples [{found.interval.low:.2f}, {found.interval.high:.2f}], 8 seeds."
    assert said(one) == [f"shaw is better than absolute: {numbers}"]
    turned = compared(rows({"absolute": BASE, "shaw": SHAW}, SHARE), baseline="shaw")
    assert said(turned) == [f"absolute is worse than shaw: {numbers}"]
    alike = compared(rows({"absolute": [0.0] * 3, "shaw": [0.0] * 3}, SHARE))
    assert said(alike) == ["shaw and absolute were equal in each of 3 seeds. Both have 0.000 in all seeds."]


def test_only_common_seeds_are_compared() -> None:
    values = {"absolute": {1: 5.0, 2: 6.0, 3: 7.0}, "shaw": {3: 6.9, 4: 7.9, 5: 8.9}}
    one = compared(rows(values))
    assert (one.differences["shaw"].n, one.differences["shaw"].mean) == (1, pytest.approx(-0.1))
    (text,) = said(one)
    assert text.startswith("shaw was better than absolute: 0.100 nats in one run each")
    assert text.endswith("4 of 5 planned seeds are missing (1, 2, 4, 5).")
    apart = {"absolute": {1: 5.0, 2: 6.0}, "shaw": {4: 7.9}}
    assert said(compared(rows(apart)))[0].startswith("shaw and absolute have no seed in common")


def test_direction_and_unit_may_be_typed() -> None:
    """Of a metric without a unit nothing is known of what matters; 0 and 1 are taken for proportions."""
    plain = {"mine": losses(noise=0.03, mine=0.0)["mine"], "plain": losses(noise=0.03, a=0, plain=0.0)["plain"]}
    kind = {"metric": "value"}
    with pytest.raises(BadSetting, match=r"^better: .*better=lower"):
        compared(rows(plain, kind))
    (text,) = said(compared(rows(plain, kind), better="lower"))
    assert text.endswith(" seeds.")
    assert (
        " To show a difference of 0.01, plan with " in said(compared(rows(plain, kind), better="lower", effect=0.01))[0]
    )
    assert " are equal within 0.2: " in said(compared(rows(plain, kind), better="lower", effect=0.2))[0]
    solved = rows({"a": [1] * 8, "b": [0] * 8}, {"metric": "solved"})
    assert said(compared(solved, better="higher")) == ["b is worse than a: 1.00 of all [0.58, 1.00], 8 seeds."]
    assert said(compared(solved, better="lower"))[0].startswith("b is better than a: 1.00 of all")


# What is asked


def of_two_metrics() -> list:
    """At two lengths, and the loss of the whole."""
    values = {"absolute": BASE, "shaw": SHAW}
    quarter = {name: [share / 4 for share in of] for name, of in values.items()}
    alike = {name: [4.0] * 8 for name in values}
    return [rows(values, SHARE, length=20), rows(quarter, SHARE, length=40), rows(alike)]


def test_metric_and_length_can_be_chosen() -> None:
    parts = of_two_metrics()
    assert compared(*parts).metric.title == "exact at 20"
    assert compared(*parts, length=40).group("shaw").values[1] == SHAW[0] / 4
    by_loss = compared(*parts, metric="loss")
    assert (by_loss.metric.title, by_loss.metric.sign) == ("loss", 1)
    assert said(by_loss) == ["shaw and absolute were equal in each of 8 seeds."]
    table = Section("results", compared(*parts, length=40)).table
    assert table.columns[-1] == "exact at 20"
    assert table.rows[0][:3] + table.rows[0][-1:] == ["shaw", "8", f"{sum(SHAW) / 32:.3f}", f"{sum(SHAW) / 8:.3f}"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metric": "exat"}, "metric=exat: there is no such metric; did you mean exact? valid: exact, loss"),
        ({"length": 30}, "length=30: exact is known at 20, 40"),
        ({"metric": "loss", "length": 20}, "length=20: loss is of the whole run, at no length"),
        ({"baseline": "shav"}, "baseline=shav: unknown; did you mean shaw? valid: absolute, shaw"),
        ({"better": "higer"}, "better=higer: must be lower or higher"),
        ({"pairs": "ALL"}, "pairs=ALL: must be baseline or all"),
        ({"looks": 0}, "looks=0: must be a whole number above 0"),
        ({"looks": 1.5}, "looks=1.5: must be a whole number above 0"),
        ({"effect": float("nan")}, "effect=nan: must be a number above 0"),
        ({"effect": float("inf")}, "effect=inf: must be a number above 0"),
        ({"effect": "0.5"}, "effect=0.5: must be a number above 0"),
    ],
)
def test_what_no_row_has_is_refused_with_what_they_have(settings: dict, problem: str) -> None:
    with pytest.raises(BadSetting) as refused:
        compared(*of_two_metrics(), **settings)
    assert (str(refused.value), refused.value.option) == (problem, next(reversed(settings)))


def test_a_length_may_be_0() -> None:
    cells = [(name, seed, length) for length in (16, 0) for name in "ab" for seed in (1, 2, 3)]
    table = pd.DataFrame(cells, columns=["name", "seed", "length"]).assign(metric="loss", better="lower")
    table["value"] = table["length"] + table["seed"] / 100 + (table["name"] == "b")
    for length, first in ((None, 16.01), (0, 0.01), (16, 16.01)):
        one = seedstats.compare(checked(table), length=length)["results"]
        assert one.groups[0].values[1] == pytest.approx(first)


def test_each_kind_of_data_is_compared_by_itself_in_one_family() -> None:
    """What one of them doesn't know is taken as usual there, and noted; what none knows is refused."""
    text = rows(losses(absolute=0.0, t5=-0.1, shaw=-0.03), data="text")
    table = table_of(*(part.assign(data="copy") for part in of_two_metrics()), text)
    found = seedstats.compare(table, length=40, baseline="t5")
    assert list(found) == ["copy", "text"]
    assert [one.metric.title for one in found.values()] == ["exact at 40", "loss"]
    assert [one.baseline for one in found.values()] == ["absolute", "t5"]
    assert found["copy"].notes == ["baseline=t5: unknown; valid: absolute, shaw; the default is used"]
    assert found["text"].notes == ["length=40: loss is of the whole run, at no length; the default is used"]
    assert {one.comparisons for one in found.values()} == {3}
    alone = seedstats.compare(table[table["data"] == "text"], baseline="t5")["text"].differences
    usual = {("text", name): d for name, d in found["text"].differences.items()}
    assert max(d.p_value for d in usual.values()) > max(d.p_value for d in alone.values())
    with refused("length", "41", "20", "40"):
        seedstats.compare(table, length=41)
    with refused("baseline", "t6"):
        seedstats.compare(table, baseline="t6")


def test_planned_looks_cost_as_much_as_unplanned_ones() -> None:
    values = rows(losses(plain=0.0, mine=-0.1))
    grown = values.assign(look=["2" if int(seed) > 3 else "1" for seed in values["seed"]])
    once, planned, unplanned = compared(values), compared(values, looks=2), compared(grown)
    assert said(planned) == said(unplanned) != said(once)
    assert planned.differences["mine"].p_value == pytest.approx(2 * once.differences["mine"].p_value)
    assert caveats(planned) == []
    assert caveats(unplanned)[0].startswith("Further seeds were planned after a comparison of 3 seeds. Looking again")


def test_a_table_without_a_finished_run() -> None:
    for values in ([math.nan, math.nan], [None, math.inf]):
        with pytest.raises(BadTable, match="diverged"):
            compared(rows({"a": values}))


def test_caveats_of_runs_stand_once_and_those_of_references_are_no_caveats_of_groups() -> None:
    table = rows(losses(absolute=0.0, t5=-0.5)).assign(caveat=["", "short text\nother device", *["short text"] * 8])
    worse = reference("bigram model", 3.8, caveat="hardly trained")
    easy = reference("unigram model", 9.0)
    assert caveats(compared(table, easy)) == ["short text.", "other device."]
    one = compared(table, worse, easy)
    assert caveats(one)[2:] == ["absolute is not shown to be better than the bigram model (3.8000): hardly trained."]
    assert [group.label for group in one.groups] == ["t5", "absolute"]
    assert one.comparisons == 1
    assert Section("text", one).table.foot == [
        [name, "", value, *[""] * 6] for name, value in (("(bigram model)", "3.80"), ("(unigram model)", "9.00"))
    ]
    at_20, at_40 = (reference("chance", 0.5, SHARE, length=length) for length in (20, 40))
    shares = rows({"absolute": BASE, "shaw": SHAW}, SHARE, length=20)
    assert compared(at_40, shares).references == {}
    assert caveats(compared(at_20, shares)) == ["absolute is not shown to be better than the chance (0.500)."]


# Names of groups


def shaw_grid() -> list:
    """Keys, values or both, at two distances; and names without settings."""
    kinds = itertools.product((4, 16), (("true", "true"), ("true", "false"), ("false", "true")))
    grid = [
        rows({"shaw": [4 + distance / 100]}, max_distance=distance, keys=keys, values=values)
        for distance, (keys, values) in kinds
    ]
    return [*grid, rows({"nope": [4.0]}), rows({"t5": [4.0]}, factor="8.0"), rows({"t5": [4.0]}, factor="1.0")]


def test_every_label_names_its_group() -> None:
    labels = [group.label for group in compared(*shaw_grid()).groups]
    assert len(labels) == len(set(labels)) == 9
    for label in labels:
        assert compared(*shaw_grid(), baseline=label).baseline == label


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("shaw max_distance=16", "shaw max_distance=16 keys=true values=true"),  # all with 16 are alike
        ("shaw values=false max_distance=4", "shaw max_distance=4 keys=true values=false"),
        ("t5 factor=8", "t5 factor=8.0"),
        ("nope", "nope"),
    ],
)
def test_some_settings_name_a_group(typed: str, meant: str) -> None:
    assert compared(*shaw_grid(), baseline=typed).baseline == meant


def test_a_baseline_is_its_name_at_its_best_setting() -> None:
    """Which counts as one of several; not so if all of its settings are given."""
    values = losses(a=0.0, b=-0.1)
    parts = [rows(values, rate=1), rows({name: [x - 0.3 for x in of.values()] for name, of in values.items()}, rate=2)]
    for baseline, label, comparisons in (
        ("a", "a rate=2", 7), (None, "a rate=2", 7), ("b", "b rate=2", 7), ("a rate=1", "a rate=1", 4),
    ):  # fmt: skip
        one = compared(*parts, baseline=baseline)
        assert (one.baseline, one.comparisons) == (label, comparisons)
        assert ("b rate=2 is best: better than a rate=2 by 0." in seedstats.headline(one)) == (label != "a rate=1")


def test_names_that_are_meant() -> None:
    (group,) = compared(rows({"t5": [4.0]}, scale="32.0", share="true", retrieval="null")).groups
    names = ("t5", "t5 scale=32", "t5 scale=32.0 share=True", "t5 retrieval=null")
    assert all(map(group.is_named, names))
    assert not any(map(group.is_named, ("shaw", "t5 scale=31", "t5 share=false", "t5 width=32", "t5 retrieval=1")))


def test_a_name_with_spaces_may_have_several_settings() -> None:
    values = losses(**{"my method": 0.0, "my": -0.1})
    parts = [rows(values, rate=1), rows({name: [x - 0.3 for x in of.values()] for name, of in values.items()}, rate=2)]
    labels = {"my method": "my method rate=2", "my method rate=1": "my method rate=1", "my": "my rate=2"}
    assert {name: compared(*parts, baseline=name).baseline for name in labels} == labels
    assert compared(*parts).baseline == "my method rate=2"


# All pairs


def test_every_pair_is_tested_in_one_family() -> None:
    """Also those with the baseline, whose p-values the table shows."""
    values = losses(absolute=0.0, shaw=-0.02, t5=-0.04, nope=0.01)
    pairs = itertools.combinations(values, 2)
    alone = {pair: stats.ttest_rel(*(list(values[name].values()) for name in pair)).pvalue for pair in pairs}
    expected = {frozenset(pair): p for pair, p in holm(alone).items()}
    one = compared(rows(values), pairs="all")
    assert {frozenset(pair): d.p_value for pair, d in one.pairs.items()} == pytest.approx(expected)
    assert all(d.comparisons == 6 for d in one.pairs.values())
    assert {name: d.p_value for name, d in one.differences.items()} == pytest.approx(
        {name: expected[frozenset({name, "absolute"})] for name in ("shaw", "t5", "nope")}
    )
    gaps = [values["t5"][seed] - values["absolute"][seed] for seed in values["t5"]]
    assert one.differences["t5"].mean == pytest.approx(np.mean(gaps))
    assert not compared(rows(values)).pairs


def test_pairs_in_words_and_as_a_matrix() -> None:
    """Sentences name the better one first, and the matrix has it above."""
    one = compared(rows(losses(absolute=0.0, shaw=-0.3, t5=-0.6)), pairs="all")
    assert [re.sub(":.*", "", text) for text in said(one)] == [
        "t5 is better than absolute", "shaw is better than absolute", "t5 is better than shaw"
    ]  # fmt: skip
    found = matrix(one)
    (first, *cells), (second, *below) = found.rows
    assert (first, second) == ("1 t5", "2 shaw")
    assert [cell and cell.marked for cell in (*cells, *below)] == [True, True, "", True]
    assert re.match(r"t5 - absolute: -0\.\d+ \[-0\.\d+, -0\.\d+\], n = 5, p = ", cells[1].tooltip)
    assert found in Section("text", one)._tables
    assert [row[-1] for row in Section("text", one).table.rows] == ["1", "2", "3"]  # ranks
    assert matrix(compared(rows(losses(absolute=0.0, t5=-0.6)), pairs="all")) is None


# Metrics


def test_small_values_keep_their_digits() -> None:
    metric = Metric("loss", LOSS["unit"])
    told = {1.2e-7: "+1.2e-07", -4.9e-5: "-4.9e-05", 5.1e-5: "+0.0001", 0.0: "+0.0000", 4.0: "+4.0000"}
    assert {value: metric.text(value, "+") for value in told} == told
    assert metric.places(0.0801, 0.0799) == 4
    assert [metric.places(width=width) for width in (0.02, 1.8, 31.0, 900.0)] == [3, 1, 0, 0]
    assert metric.text(None) == metric.interval(None) == "n/a"


def test_the_first_row_has_the_usual_metric() -> None:
    table = table_of(*of_two_metrics())
    assert metric_of(table, None, None, None) == Metric("exact", "of the examples", True, 20)
    assert metric_of(table[::-1], None, None, None) == Metric("loss", "nats per token")


def test_a_group_whose_interval_reaches_a_reference_is_not_shown_to_be_better() -> None:
    losses_of_t5 = {"t5": [3.0, 3.1, 3.2, 3.3, 3.4]}  # mean 3.2, interval 3.00 to 3.40
    for value, told in ((3.3, True), (3.5, False)):
        compared_with = compared(rows(losses_of_t5), reference("bigram model", value))
        assert any("bigram model" in text for text in caveats(compared_with)) == told
