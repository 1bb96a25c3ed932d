"""Verdicts on claims."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from refusals import refused
from scipy import stats
from tables import SHARE, losses, rows, table_of

from seedstats import BadSetting, compare, read_claims, read_table, report, verdicts
from seedstats.claims import parse_claim
from seedstats.page import terminal
from seedstats.reporting import Report
from seedstats.section import Section
from seedstats.statistics.permutation import seeds_to_claim
from seedstats.table import checked
from seedstats.verdict import Verdict, verdict_table

REPOSITORY = Path(__file__).resolve().parents[2]
Shares = Mapping[str, Sequence[float | None] | Mapping[int, float | None]]


def verdicts_on(parts: Sequence[pd.DataFrame] | Shares, *claims: str) -> list[Verdict]:
    """Verdicts on shares of seeds on copy at 10, or on tables."""
    tables = [at(10, parts)] if isinstance(parts, Mapping) else parts
    return verdicts([parse_claim(yaml.safe_load(claim)) for claim in claims], compare(table_of(*tables)))


def at(length: int, shares: Shares, data: str = "copy", **columns: object) -> pd.DataFrame:
    return rows(shares, SHARE, data=data, length=length, **columns)


BETTER = "{better: shaw, than: nope, data: copy, length: 10, by: 0.2}"
EIGHT = [1.0, 0.99, 0.98, 1.0, 0.97, 1.0, 1.0, 0.99]


def test_a_claim_that_is_shown() -> None:
    (verdict,) = verdicts_on({"shaw": EIGHT, "nope": [0.1] * 8}, BETTER)
    assert verdict.said == "shown"
    assert verdict.p == 1 / 2**8
    claim = "shaw better than nope by at least 0.2 in exact on copy at 10"
    assert verdict.sentence == f"Shown: {claim}. shaw has 0.991, nope has 0.100. p = 0.0039 from 8 seeds."
    low, high = stats.ttest_1samp([x - 0.3 for x in EIGHT], 0).confidence_interval(0.95)
    assert verdict.row[:6] == [claim, "shown", "8", f"+0.691 [{low:+.3f}, {high:+.3f}]", "0.0039", "1"]


def test_a_length_that_another_group_lacks() -> None:
    """Also where that group is the best, as one whose positions end is at the lengths that it has."""
    of_five = {"absolute": [1.0] * 5, "shaw": [0.9] * 5, "nope": [0.1] * 5}
    beyond = {"shaw": [0.8] * 5, "nope": [0.1] * 5}
    (verdict,) = verdicts_on([at(10, of_five), at(20, beyond)], "{better: shaw, than: nope, length: 20}")
    assert verdict.said == "shown"


@pytest.mark.parametrize(
    ("nope", "said"),
    [
        ([0.1] * 6 + [0.0] * 2, [("shown", ""), ("not shown", "6 of 8 seeds agree")]),
        ([0.1] * 6 + [0.0, None], [("not tested", "1 of 8 seeds of shaw and nope is missing (8)"),
                                   ("not tested", "1 of 8 seeds of nope is missing (8)")]),
        ([None] * 8, [("not tested", "no finished run of nope")] * 2),
    ],
)  # fmt: skip
def test_a_missing_seed_is_no_reason_to_show_anything(nope: list[float | None], said: list[tuple[str, str]]) -> None:
    """Nor is a group that is gone, where all are claimed to do something."""
    found = verdicts_on({"shaw": EIGHT, "nope": nope}, BETTER, "{name: all, at_least: 0.05, data: copy, length: 10}")
    assert [(verdict.said, "; ".join(verdict.remarks)) for verdict in found] == said


def test_a_seed_that_diverged_speaks_against_its_group() -> None:
    one_gone, gone = [0.1, math.nan, *[0.1] * 6], [EIGHT[0], math.nan, *EIGHT[2:]]
    (verdict,) = verdicts_on({"shaw": EIGHT, "nope": one_gone}, BETTER)
    assert (verdict.said, verdict.remarks) == ("shown", ["1 of 8 seeds of nope diverged"])
    (verdict,) = verdicts_on({"shaw": gone, "nope": [0.1] * 8}, BETTER)
    assert verdict.said == "not shown"
    assert verdict.remarks == ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"]
    assert verdict.row[2:4] == ["8", "+0.691"]


@pytest.mark.parametrize(("first", "second", "by"), [(0.92, 0.9, 0.02), (0.9, 0.7, 0.2), (0.3, 0.2, 0.1)])
def test_a_claim_that_is_met_exactly_is_neither_shown_nor_its_opposite(first: float, second: float, by: float) -> None:
    shares = {"a": [first] * 8, "b": [second] * 8}
    claims = [
        f"{{equal: [a, b], within: {by}}}",
        f"{{better: a, than: b, by: {by}}}",
        f"{{name: a, at_least: {first}}}",
    ]
    for verdict in verdicts_on(shares, *claims):
        assert (verdict.said, verdict.p) == ("not shown", 1)


def test_a_claim_without_a_metric_is_about_the_compared_one() -> None:
    table = pd.concat([rows({"a": EIGHT, "b": [0.5] * 8}, SHARE, metric="exact"),
                       rows({"a": [0.5] * 8, "b": EIGHT}, SHARE, metric="accuracy")])  # fmt: skip
    claim = parse_claim({"better": "a", "than": "b"})
    for metric, said in (("exact", "shown"), ("accuracy", "the opposite shown")):
        (verdict,) = verdicts([claim], compare(table_of(table), metric=metric))
        assert (verdict.said, verdict.claim.metric) == (said, metric)


def test_too_few_seeds_are_told() -> None:
    shares = {"shaw": [1.0] * 3, "nope": [0.0] * 3}
    (verdict,) = verdicts_on(shares, BETTER)
    assert (verdict.said, verdict.p) == ("not shown", 1 / 2**3)
    assert verdict.remarks == ["all 3 seeds agree, but to show it takes 5 seeds: go on with seed=1,2,3,4,5"]
    table = at(10, shares)
    (verdict,) = verdicts_on([table.assign(seed=table["seed"].astype(int).map({1: 201, 2: 203, 3: 204}))], BETTER)
    assert verdict.remarks[0].endswith("go on with seed=201,202,203,204,205")  # 1, 2, ... may have chosen
    verdict, *_ = verdicts_on(shares, BETTER, *(f"{{name: shaw, at_least: 0.{n}}}" for n in range(1, 10)))
    among = "all 3 seeds agree, but to show one of 10 claims takes 8 seeds: go on with seed=1,2,3,4,5,6,7,8"
    assert (verdict.p, verdict.remarks) == (1.0, [among])
    assert [seeds_to_claim(family, sides=1) for family in (1, 2, 10, 12, 13)] == [5, 6, 8, 8, 9]


def test_the_opposite_of_a_claim() -> None:
    (verdict,) = verdicts_on({"shaw": [0.2] * 5, "nope": [0.3] * 5}, BETTER)
    assert verdict.said == "the opposite shown"
    assert verdict.sentence.endswith(". shaw has 0.200, nope has 0.300. p = 0.031 from 5 seeds.")
    (verdict,) = verdicts_on({"shaw": [0.31] * 5, "nope": [0.3] * 5}, BETTER)
    assert (verdict.said, verdict.remarks) == ("not shown", ["0 of 5 seeds agree"])  # better, but by less


def test_a_claim_about_all_is_as_sure_as_of_the_worst_group() -> None:
    null, control = "{name: all, at_least: 0.9}", "{name: all, at_most: 0.1}"
    shares = {"shaw": [1.0] * 5, "nope": [0.95] * 5}
    (verdict,) = verdicts_on(shares, null)
    assert (verdict.said, verdict.p) == ("shown", 1 / 2**5)
    assert "Least sure: nope has 0.950. p = 0.031 from 5 seeds." in verdict.sentence
    verdict, opposite = verdicts_on(shares | {"t5": [0.95, 0.95, 0.95, 0.95, 0.5]}, null, control)
    assert verdict.said == "not shown"
    assert "each at least 0.9 in exact on copy. Least sure: t5 has 0.860." in verdict.sentence
    assert verdict.remarks == ["4 of 5 seeds agree"]
    assert opposite.p_opposite_alone == 3 / 2**5  # it may be false of any of three
    assert "one of 2 claims takes 7" in opposite.remarks[0]


def test_of_losses_less_is_better() -> None:
    better, worse = verdicts_on(
        [rows(losses(shaw=-0.5, t5=0.0))], "{better: shaw, than: t5, by: 0.1}", "{better: t5, than: shaw}"
    )
    assert (better.said, worse.said) == ("not shown", "not shown")
    assert (better.p_alone, worse.p_opposite_alone) == (1 / 2**5, 1 / 2**5)
    assert "one of 2 claims takes 6 seeds: go on with seed=1,2,3,4,5,6" in better.sentence


def test_the_direction_is_that_of_the_table_or_of_the_comparison() -> None:
    """A claim on a metric whose direction nobody has told is refused, but for equality."""
    parts = [rows(losses(seeds=5, shaw=-0.5, t5=0.0), {"metric": metric}) for metric in ("loss", "time")]
    one = compare(table_of(*parts), better="lower")
    better, equal = "{better: shaw, than: t5, metric: %s}", "{equal: [shaw, t5], within: 1, metric: time}"
    found = verdicts([parse_claim(yaml.safe_load(claim)) for claim in (better % "loss", equal)], one)
    assert [verdict.said for verdict in found] == ["not shown", "not shown"]
    assert (found[0].p_alone, found[1].p_alone) == (1 / 2**5, 1 / 2**5)
    with refused("claims[0].metric", "time"):
        verdicts([parse_claim(yaml.safe_load(better % "time"))], one)


def test_claims_without_runs() -> None:
    tables = [at(10, {"shaw": [1.0], "nope": [1.0]}), at(9, {"nope": [1.0]})]
    found = verdicts_on(tables, BETTER, "{name: shaw, at_least: 0.5, length: 9}")
    assert [verdict.sentence.partition(". ")[2] for verdict in found] == [
        "One seed of shaw and nope says nothing about chance.", "No values of shaw.",
    ]  # fmt: skip
    assert all(len(verdict.row) == len(verdict_table(found).columns) for verdict in found)


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ("better: shav, than: nope", "better=shav: there is no such group on these data; did you mean shaw?"),
        ("better: shaw, than: nope, data: sotr", "data=sotr: there are no such data here; did you mean sort?"),
        ("better: shaw, than: nope, length: 11", "length=11: exact is known at 10, 20"),
        ("better: shaw, than: nope, length: null", "length=None: exact is known at 10, 20"),
        ("better: shaw, than: nope, metric: exakt", "metric=exakt: there is no such value here; did you mean exact?"),
        ("better: shaw, than: nope, data: null", "data=None: is one of several here; say which: copy, sort"),
        ("better: t5, than: nope", "better=t5: is several groups here; say which: t5 scale=1.0, t5 scale=2.0"),
        ("equal: [shaw, t5 scale=3], within: 1", "equal=t5 scale=3: there is no such group on these data"),
        ("of: [t5, shaw], between: {scale: [1, 2]}", "of=shaw scale=1: there is no such group on these data"),
    ],
)
def test_claims_that_the_table_lacks(claim: str, problem: str) -> None:
    both = {"shaw": [1.0], "nope": [1.0]}
    scales = [at(length, {"t5": [1.0]}, scale=scale) for length in (10, 20) for scale in ("1.0", "2.0")]
    given = {"data": "copy", "length": 10} | yaml.safe_load(f"{{{claim}}}")
    kept = {key: value for key, value in given.items() if value is not None}
    with pytest.raises(BadSetting, match=re.escape(f"claims[0].{problem}")):
        verdicts_on([at(10, both), at(20, both), *scales, at(10, {"shaw": [1.0]}, "sort")], str(kept))


@pytest.mark.parametrize(
    ("shares", "within", "said"),
    [
        ([0.9] * 6, 0.02, "shown"),
        ([0.9] * 6, 0.001, "the opposite shown"),
        ([0.8, *[0.9] * 5], 0.02, "not shown"),
    ],
)
def test_equal_within_a_margin(shares: list[float], within: float, said: str) -> None:
    claim = f"{{equal: [shaw, nope], within: {within}}}"
    (verdict,) = verdicts_on({"shaw": shares, "nope": [0.91] * 6}, claim)
    assert verdict.sentence.startswith(f"{said.capitalize()}: shaw equal to nope within {within} in exact on copy. ")
    (verdict,) = verdicts_on({"shaw": [shares[0], math.nan, *shares[2:]], "nope": [0.91] * 6}, claim)
    assert (verdict.said, verdict.remarks[1:]) == ("not shown", ["1 of 6 seeds of shaw diverged"])


INTERACTION = "{of: [shaw, nope], between: {norm: [layer, rms]}, by: 0.1}"


def crossed(leads: Iterable[float], better: str = "higher") -> pd.DataFrame:
    """A table in which shaw is ahead of nope by so much more, a seed each, with one norm than with the other."""
    rows = []
    for seed, lead in enumerate(leads, start=1):
        for name, norm, effect in (
            ("nope", "layer", 0.0), ("shaw", "layer", 0.25 + lead), ("nope", "rms", 4.0), ("shaw", "rms", 4.25),
        ):  # fmt: skip
            value = seed + (effect if better == "higher" else -effect)
            rows.append({"name": name, "seed": seed, "value": value, "norm": norm, "better": better})
    return checked(pd.DataFrame(rows))


def interaction_in(table: pd.DataFrame, claim: str = INTERACTION) -> Verdict:
    (verdict,) = verdicts([parse_claim(yaml.safe_load(claim))], compare(table))
    return verdict


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_an_interaction(better: str) -> None:
    """What a seed does to all of its runs, and what a setting does to both schemes, is no part of it."""
    leads = [0.3, 0.2, 0.25, 0.35, 0.15]
    verdict = interaction_in(crossed(leads, better))
    low, high = stats.ttest_1samp(leads, 0).confidence_interval(0.95)
    assert verdict.said == "shown"
    assert verdict.sentence.startswith(
        "Shown: shaw better than nope by at least 0.1 more with norm=layer than with norm=rms in value on results. "
    )
    assert f"The difference is +0.250 [{low:+.3f}, {high:+.3f}]. p = 0.031 from 5 seeds." in verdict.sentence
    assert list(verdict.weakest.margins.values()) == pytest.approx([lead - 0.1 for lead in leads])
    assert interaction_in(crossed([-lead for lead in leads], better)).said == "the opposite shown"
    assert interaction_in(crossed([0.09] * 5, better)).said == "not shown"
    assert ". The difference is +0.250 in all seeds. p = " in interaction_in(crossed([0.25] * 5, better)).sentence


def test_differences_that_a_setting_does_not_change() -> None:
    """Each pair of the groups, in both directions."""
    claim = "{of: [shaw, nope], between: {norm: [layer, rms]}, within: 0.1}"
    assert interaction_in(crossed([0.05, -0.03, 0.02, -0.05, 0.06]), claim).said == "shown"
    assert interaction_in(crossed([0.2, 0.3, 0.2, 0.25, 0.4, 0.3]), claim).said == "the opposite shown"
    third = crossed([0.3] * 5).query("name == 'shaw'").assign(name="t5")
    table = checked(pd.concat([crossed([0.05, -0.03, 0.02, -0.05, 0.06]), third]))
    both = claim.replace("nope", "nope, t5")
    assert (interaction_in(table, both).said, len(interaction_in(table, both).margin_tests)) == ("not shown", 6)


def test_claims_that_must_hold_together() -> None:
    """They are one in the family, as sure as the least sure of them."""
    both = (
        "{claim: it solves, all_of: [{name: shaw, at_least: 0.5, length: 10}, {name: shaw, at_least: 0.5, length: 20}]}"
    )
    nope = "{name: nope, at_most: 0.5, length: 10}"
    near = [0.6, 0.6, 0.6, 0.4, 0.6, 0.6]
    found = verdicts_on([at(10, {"shaw": [0.9] * 6, "nope": [0.1] * 6}), at(20, {"shaw": near})], both, nope)
    assert [verdict.said for verdict in found] == ["not shown", "shown"]
    assert found[0].p_alone == sum(comb(6, n) for n in (0, 1)) / 2**6
    assert (found[0].family, found[1].p) == (2, 2 / 2**6)
    assert found[0].sentence.startswith("Not shown: it solves. Least sure: shaw has 0.567. ")
    (found,) = verdicts_on([at(10, {"shaw": [0.9, None, 0.9]}), at(20, {"shaw": near})], both)
    assert (found.said, found.remarks) == ("not tested", ["1 of 3 seeds of shaw is missing (2)"])


def test_a_ratio_of_two_groups() -> None:
    """`times` scales the second group; the opposite is that it is better as it is."""
    claim = "{better: shaw, than: nope, times: 2}"
    assert verdicts_on({"shaw": EIGHT, "nope": [0.4] * 8}, claim)[0].said == "shown"
    assert verdicts_on({"shaw": EIGHT, "nope": [0.6] * 8}, claim)[0].said == "not shown"
    verdict = verdicts_on({"shaw": [0.4] * 8, "nope": EIGHT}, claim)[0]
    assert (verdict.said, verdict.p_opposite) == ("the opposite shown", 1 / 2**8)


def test_a_value_less_that_at_another_length() -> None:
    """Each run's own difference: what it loses beyond the length that it was trained to."""
    seeds = [2.0, 3.0, 4.0, 5.0, 6.0]
    tables = [rows({"shaw": [x + more for x in seeds]}, length=64 + 448 * (more > 0)) for more in (0, 0.02)]
    claim = "{{name: shaw, at_most: {}, length: 512, beyond: 64}}"
    assert verdicts_on(tables, claim.format(0.03))[0].said == "shown"
    assert verdicts_on(tables, claim.format(0.01))[0].said == "the opposite shown"
    with refused("claims[0].beyond", "65", "64", "512"):
        verdicts_on(tables, claim.format(1).replace("64", "65"))


def test_an_interaction_needs_all_four_runs_of_a_seed() -> None:
    table = crossed([0.3, 0.2, 0.25, 0.35, 0.15])
    of_one = (table["seed"] == 2) & (table["name"] == "shaw") & (table["norm"] == "rms")
    verdict = interaction_in(table.assign(status=np.where(of_one, "diverged", "finished")))
    assert (verdict.said, verdict.difference) == ("not shown", "")
    assert verdict.remarks == ["4 of 5 seeds agree", "1 of 5 seeds of shaw norm=rms diverged"]
    assert interaction_in(checked(table[~of_one])).remarks[0].startswith("1 of 5 seeds of shaw norm=layer and nope")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cable", ["agrees", "agrees", "agrees", "undecided", "agrees"]),
        ("huang_copy", ["agrees"] * 2),
        ("huang_majority", ["agrees"] * 4),
        ("huang_repeats", ["shown", *["not comparable"] * 2]),
        ("nanogpt", ["agrees"]),
        ("path_flip_flop", [*["not comparable"] * 12, "agrees"]),
        ("zoology_mqar", ["the opposite shown", "not comparable"]),
    ],
)
def test_published_tables(name: str, said: list[str]) -> None:
    """As data/studies/published/README.md says."""
    table = read_table(REPOSITORY / "data" / "studies" / "published" / name / "results.csv.gz")
    claims = read_claims(REPOSITORY / "configs" / "claims" / "published" / f"{name}.yaml")
    assert [one.said for one in verdicts(claims, compare(table))] == said


ONES, THEIRS = [1.0, 1.0, 0.9995, 1.0, 1.0], "value: [1.0, 0.999, 1.0, 1.0, 0.9995], within: 0.01"


@pytest.mark.parametrize(
    ("seeds", "published", "said", "remark"),
    [
        (ONES, THEIRS, "agrees within 0.01", ""),
        ([0.98] * 5, "value: [0.97, 0.99, 0.98, 0.96, 1.0], within: 0.05", "agrees within 0.05", ""),
        ([0.91, 0.92, 0.93, 0.91, 0.92], THEIRS, "differs by more than 0.01", ""),
        ([0.98, 1.0, 0.97, 1.0, 1.0], THEIRS, "undecided", "3 of 5 seeds agree"),
        (ONES, "value: 0.999, within: 0.01", "agrees within 0.01", ""),
        (ONES[:2], "value: 0.999, within: 0.01", "undecided",
         "all 2 seeds agree, but to show it takes 5 seeds: go on with seed=1,2,3,4,5"),
        (ONES[:2], "value: [1.0, 1.0, 1.0, 1.0], within: 0.01", "undecided",
         "all 2 seeds agree, but to show it takes 3 seeds: go on with seed=1,2,3"),
        (ONES, "value: 0.999", "not comparable", "settings are scaled"),
    ],
)  # fmt: skip
def test_published_values(seeds: list[float], published: str, said: str, remark: str) -> None:
    claim = f"{{name: shaw, {published}, data: copy, length: 10, source: Paper}}"
    untested = "{name: nope, value: 0.1, data: copy, length: 10, source: Paper}"  # counts for no correction
    verdict, *_ = found = verdicts_on({"shaw": seeds, "nope": [0.1] * len(seeds)}, claim, untested)
    assert verdict.published_row[-2:] == [said, remark]
    assert found[1].published_row[3:5] == ["seeds are alike", str(len(seeds))]
    if said == "agrees within 0.01":
        assert verdict.published_row[1:5] == [
            "0.9997" if "[" in published else "0.999", "0.9999", "0.9996 to 1.0000", "5",
        ]  # fmt: skip
        assert verdict.p == (1 / math.comb(10, 5) if "[" in published else 1 / 2**5)


def test_published_values_over_several_lengths() -> None:
    claims = [f"{{name: shaw, value: 0.95, within: 0.01, length: 51, up_to: {n}, source: Paper}}" for n in (100, 150)]
    tables = [at(51, {"shaw": [1.0] * 8}), at(75, {"shaw": [0.9] * 8})]
    tables.append(at(101, {"shaw": [0.2 + 0.01 * seed for seed in range(1, 9)]}))
    first, second = verdicts_on(tables, *claims)
    assert first.published_row[:3] == ["shaw in exact on copy at 51 to 100", "0.95", "0.9500"]
    assert (first.said, second.said) == ("agrees", "differs")
    gone = [table.assign(value=table["value"].where(table["seed"] != "2", "nan")) for table in tables]
    first, _ = verdicts_on(gone, *claims)
    assert (first.said, first.remarks) == ("undecided", ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"])


def test_verdicts_stand_first(tmp_path: Path) -> None:
    table = table_of(at(10, {"shaw": ONES, "nope": [0.1] * 5}))
    one = compare(table)
    value: dict[str, Any] = {"name": "shaw", "value": ONES, "within": 0.01, "source": "Paper; no dropout"}
    found = verdicts([parse_claim(value), parse_claim({"better": "shaw", "than": "nope"})], one)
    row = ["shaw in exact on copy", "0.9999", "0.9999", "0.9996 to 1.0000", "5", "agrees within 0.01", ""]
    text = report(one, tmp_path, table, found).with_suffix(".md").read_text()
    first = next(line for line in text.splitlines() if line.startswith("- "))
    assert first.startswith("- Shown: shaw better than nope in exact on copy. shaw has 1.000,")
    assert f"| {' | '.join(row)} |" in text
    assert text.index("shaw: 1.000, 1.000") < text.index("nope is worse than shaw")
    screen = terminal.page(Report([Section("copy", one["copy"])], verdicts=found, written="Written before.").on_screen)
    assert screen.startswith(f"Written before.\n{first}\n- published: Paper; no dropout\n")
    assert "\nBy exact at 10\n\nshaw is best" in screen  # claims may be on another metric
