"""Verdicts on claims."""

import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from common import REPOSITORY
from poslab.comparison.claims import claims_file, parse_claim, read_claims
from poslab.comparison.compare import compare_table
from poslab.comparison.verdicts import Verdict, verdict_table, verdicts
from runs_to_compare import (
    change_summary,
    compare_folders,
    page_in,
    plan_of,
    report_of,
    set_scheme,
    write_sweep,
    write_task_run,
)
from scipy import stats

from poslab.config.scripts import CompareConfig
from poslab.errors import UserError
from seedstats.statistics.permutation import seeds_to_claim
from seedstats.table import checked, read_table


def verdicts_in(root: Path, *claims: str, **settings: Any) -> list[Verdict]:
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir()]
    compared = {folder.name: compare_folders(folder, **settings) for folder in folders}
    return verdicts([parse_claim(yaml.safe_load(claim), "claim") for claim in claims], compared)


def write_seeds(root: Path, pos: str, shares: Iterable[float], data: str = "copy") -> None:
    for seed, share in enumerate(shares, start=1):
        write_task_run(root, pos, seed, {10: share}, data=data)


BETTER = "{better: shaw, than: nope, data: copy, length: 10, by: 0.2}"
EIGHT = [1.0, 0.99, 0.98, 1.0, 0.97, 1.0, 1.0, 0.99]


def test_a_claim_that_is_shown(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 8)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert verdict.said == "shown"
    assert verdict.p == 1 / 2**8
    claim = "shaw better than nope by at least 0.2 in exact on copy at 10"
    assert verdict.sentence == f"shown: {claim} (shaw 0.991, nope 0.100; n = 8, p = 0.0039)"
    assert verdict.row[:6] == [claim, "shown", "8", "+0.691", "0.0039", "1"]


def test_a_length_that_another_scheme_lacks(tmp_path: Path) -> None:
    """Also where that scheme is the best, as one whose positions end is at the lengths that it has."""
    for seed in range(1, 6):
        for pos, shares in (("absolute", {10: 1.0}), ("shaw", {10: 0.9, 20: 0.8}), ("nope", {10: 0.1, 20: 0.1})):
            write_task_run(tmp_path, pos, seed, shares)
    (verdict,) = verdicts_in(tmp_path, "{better: shaw, than: nope, data: copy, length: 20}")
    assert verdict.said == "shown"


def test_a_missing_seed_is_no_reason_to_show_anything(tmp_path: Path) -> None:
    """Nor is a group that is gone, where all are claimed to do something."""
    every = "{scheme: all, at_least: 0.05, data: copy, length: 10}"
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 6 + [0.0] * 2)
    plan = plan_of(tmp_path, range(1, 9))

    def said() -> list[tuple[str, str]]:
        found = verdicts_in(tmp_path, BETTER, every, plan=plan)
        return [(verdict.said, "; ".join(verdict.remarks)) for verdict in found]

    assert said() == [("shown", ""), ("not shown", "6 of 8 seeds agree")]
    shutil.rmtree(tmp_path / "copy" / "nope-seed8")
    assert said() == [
        ("not tested", "1 of 8 seeds of shaw and nope is missing (8)"),
        ("not tested", "1 of 8 seeds of nope is missing (8)"),
    ]
    for seed in range(1, 8):
        shutil.rmtree(tmp_path / "copy" / f"nope-seed{seed}")
    assert said() == [("not tested", "no finished run of nope"), ("not tested", "no finished run of nope")]


def test_a_seed_that_diverged_speaks_against_its_scheme(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 8)
    change_summary(tmp_path / "copy" / "nope-seed2", best_val_loss=math.inf)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert (verdict.said, verdict.remarks) == ("shown", ["1 of 8 seeds of nope diverged"])
    change_summary(tmp_path / "copy" / "nope-seed2", best_val_loss=4.0)
    change_summary(tmp_path / "copy" / "shaw-seed2", best_val_loss=math.inf)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert verdict.said == "not shown"
    assert verdict.remarks == ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"]
    assert verdict.row[2:4] == ["8", "+0.691"]


def test_too_few_seeds_are_told(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [1.0, 1.0, 1.0])
    write_seeds(tmp_path, "nope", [0.0, 0.0, 0.0])
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert (verdict.said, verdict.p) == ("not shown", 1 / 2**3)
    assert verdict.remarks == ["all 3 seeds agree, but 3 can't show one, 5 can: go on with seed=1,2,3,4,5"]
    others = [f"{{scheme: shaw, at_least: 0.{n}, data: copy, length: 10}}" for n in range(1, 10)]
    verdict, *_ = verdicts_in(tmp_path, BETTER, *others)
    among = "all 3 seeds agree, but 3 can't show one of 10 claims, 8 can: go on with seed=1,2,3,4,5,6,7,8"
    assert (verdict.p, verdict.remarks) == (1.0, [among])
    assert [seeds_to_claim(family, sides=1) for family in (1, 2, 10, 12, 13)] == [5, 6, 8, 8, 9]


def test_the_opposite_of_a_claim(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [0.2] * 5)
    write_seeds(tmp_path, "nope", [0.3] * 5)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert verdict.said == "the opposite shown"
    assert verdict.sentence.endswith("(shaw 0.200, nope 0.300; n = 5, p = 0.031)")
    write_seeds(tmp_path / "other", "shaw", [0.31] * 5)
    write_seeds(tmp_path / "other", "nope", [0.3] * 5)
    (verdict,) = verdicts_in(tmp_path / "other", BETTER)
    assert (verdict.said, verdict.remarks) == ("not shown", ["0 of 5 seeds agree"])  # better, but by less


def test_a_null_is_as_sure_as_of_the_worst_scheme(tmp_path: Path) -> None:
    null = "{scheme: all, at_least: 0.9, data: copy, length: 10}"
    write_seeds(tmp_path, "shaw", [1.0] * 5)
    write_seeds(tmp_path, "nope", [0.95] * 5)
    (verdict,) = verdicts_in(tmp_path, null)
    assert (verdict.said, verdict.p) == ("shown", 1 / 2**5)
    assert "(least sure of nope 0.950; n = 5, p = 0.031)" in verdict.sentence
    write_seeds(tmp_path, "t5", [0.95, 0.95, 0.95, 0.95, 0.5])
    (verdict,) = verdicts_in(tmp_path, null)
    assert verdict.said == "not shown"
    assert "every scheme at least 0.9 in exact on copy at 10 (least sure of t5 0.860;" in verdict.sentence
    assert verdict.remarks == ["4 of 5 seeds agree"]
    control = "{scheme: all, at_most: 0.1, data: copy, length: 10}"
    _, verdict = verdicts_in(tmp_path, null, control)
    assert verdict.p_opposite_alone == 3 / 2**5  # it may be false of any of three
    assert "5 can't show one of 2 claims, 7 can" in verdict.remarks[0]


def test_of_losses_less_is_better(tmp_path: Path) -> None:
    write_sweep(tmp_path / "text", seeds=5, shaw=-0.5, t5=0.0)
    better, worse = verdicts_in(tmp_path, "{better: shaw, than: t5, by: 0.1}", "{better: t5, than: shaw}")
    assert (better.said, worse.said) == ("not shown", "not shown")
    assert (better.p_alone, worse.p_opposite_alone) == (1 / 2**5, 1 / 2**5)
    assert "5 can't show one of 2 claims, 6 can: go on with seed=1,2,3,4,5,6" in better.sentence


def test_claims_without_runs(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [1.0])
    write_task_run(tmp_path, "nope", 1, {9: 1.0, 10: 1.0})
    found = verdicts_in(tmp_path, BETTER, "{scheme: shaw, at_least: 0.5, length: 9}")
    assert [verdict.sentence.partition("; ")[2] for verdict in found] == [
        "one seed of shaw and nope says nothing about chance", "no figures of shaw",
    ]  # fmt: skip
    assert all(len(verdict.row) == len(verdict_table(found).columns) for verdict in found)


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ("better: shav, than: nope", "better=shav: there is no such scheme on these data; did you mean shaw?"),
        ("better: shaw, than: nope, data: sotr", "data=sotr: there are no such data here; did you mean sort?"),
        ("better: shaw, than: nope, length: 11", "length=11: exact is known at 10, 20"),
        ("better: shaw, than: nope, length: null", "length=null: exact is known at 10, 20"),
        ("better: shaw, than: nope, metric: exakt", "metric=exakt: there is no such figure here; did you mean exact?"),
        ("better: shaw, than: nope, data: null", "data=null: is one of several here; say which: copy, sort"),
        ("better: t5, than: nope", "better=t5: is several schemes here; say which: t5 scale=1.0, t5 scale=2.0"),
        ("equal: [shaw, t5 scale=3], within: 1", "equal=t5 scale=3: there is no such scheme on these data"),
        ("of: [t5, shaw], between: {scale: [1, 2]}", "of=shaw scale=1: there is no such scheme on these data"),
    ],
)
def test_claims_that_the_runs_lack(claim: str, problem: str, tmp_path: Path) -> None:
    for pos in ("shaw", "nope"):
        write_task_run(tmp_path, pos, 1, {10: 1.0, 20: 1.0})
    for scale in (1.0, 2.0):
        set_scheme(write_task_run(tmp_path / "copy" / str(scale), "t5", 1, {10: 1.0, 20: 1.0}), scale=scale)
    write_task_run(tmp_path, "shaw", 1, {10: 1.0}, data="sort")
    given = {"data": "copy", "length": 10} | yaml.safe_load(f"{{{claim}}}")
    with pytest.raises(UserError, match=re.escape(f"claims[0].{problem}")):
        verdicts_in(tmp_path, str(given).replace("None", "null"))


@pytest.mark.parametrize(
    ("shares", "within", "said"),
    [
        ([0.9] * 6, 0.02, "shown"),
        ([0.9] * 6, 0.001, "the opposite shown"),
        ([0.8, *[0.9] * 5], 0.02, "not shown"),
    ],
)
def test_equal_within_a_margin(shares: list[float], within: float, said: str, tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", shares)
    write_seeds(tmp_path, "nope", [0.91] * 6)
    claim = f"{{equal: [shaw, nope], within: {within}}}"
    (verdict,) = verdicts_in(tmp_path, claim)
    assert verdict.sentence.startswith(f"{said}: shaw equal to nope within {within} in exact on copy (")
    change_summary(tmp_path / "copy" / "shaw-seed2", best_val_loss=math.inf)
    (verdict,) = verdicts_in(tmp_path, claim)
    assert (verdict.said, verdict.remarks[1:]) == ("not shown", ["1 of 6 seeds of shaw diverged"])


INTERACTION = "{of: [shaw, nope], between: {norm: [layer, rms]}, by: 0.1}"


def crossed(leads: Iterable[float], better: str = "higher") -> pd.DataFrame:
    """A table in which shaw is ahead of nope by so much more, a seed each, with one norm than with the other."""
    rows = []
    for seed, lead in enumerate(leads, start=1):
        for scheme, norm, effect in (
            ("nope", "layer", 0.0), ("shaw", "layer", 0.25 + lead), ("nope", "rms", 4.0), ("shaw", "rms", 4.25),
        ):  # fmt: skip
            value = seed + (effect if better == "higher" else -effect)
            rows.append({"scheme": scheme, "seed": seed, "value": value, "norm": norm, "better": better})
    return checked(pd.DataFrame(rows))


def interaction_in(table: pd.DataFrame, claim: str = INTERACTION) -> Verdict:
    compared, _ = compare_table(table, CompareConfig())
    (verdict,) = verdicts([parse_claim(yaml.safe_load(claim), "claim")], compared)
    return verdict


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_an_interaction(better: str) -> None:
    """What a seed does to all of its runs, and what a setting does to both schemes, is no part of it."""
    leads = [0.3, 0.2, 0.25, 0.35, 0.15]
    verdict = interaction_in(crossed(leads, better))
    low, high = stats.ttest_1samp(leads, 0).confidence_interval(0.95)
    assert verdict.said == "shown"
    assert verdict.sentence.startswith(
        "shown: shaw better than nope by at least 0.1 more with norm=layer than with norm=rms in value on results ("
    )
    assert f"difference +0.250 [{low:+.3f}, {high:+.3f}], n = 5, p = 0.031)" in verdict.sentence
    assert list(verdict.weakest.margins.values()) == pytest.approx([lead - 0.1 for lead in leads])
    assert interaction_in(crossed([-lead for lead in leads], better)).said == "the opposite shown"
    assert interaction_in(crossed([0.09] * 5, better)).said == "not shown"
    assert "; difference +0.250, seeds are alike, n = 5" in interaction_in(crossed([0.25] * 5, better)).sentence


def test_an_interaction_needs_all_four_runs_of_a_seed() -> None:
    table = crossed([0.3, 0.2, 0.25, 0.35, 0.15])
    of_one = (table["seed"] == 2) & (table["scheme"] == "shaw") & (table["norm"] == "rms")
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
    compared, _ = compare_table(table, CompareConfig())
    assert [one.said for one in verdicts(read_claims(claims_file(f"published/{name}")), compared)] == said


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
         "all 2 seeds agree, but 2 can't show one, 5 can: go on with seed=1,2,3,4,5"),
        (ONES[:2], "value: [1.0, 1.0, 1.0, 1.0], within: 0.01", "undecided",
         "all 2 seeds agree, but 2 can't show one, 3 can: go on with seed=1,2,3"),
        (ONES, "value: 0.999", "not comparable", "settings are scaled"),
    ],
)  # fmt: skip
def test_published_figures(seeds: list[float], published: str, said: str, remark: str, tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", seeds)
    write_seeds(tmp_path, "nope", [0.1] * len(seeds))
    claim = f"{{scheme: shaw, {published}, data: copy, length: 10, source: Paper}}"
    untested = "{scheme: nope, value: 0.1, data: copy, length: 10, source: Paper}"  # counts for no correction
    verdict, *_ = found = verdicts_in(tmp_path, claim, untested)
    assert verdict.published_row[-2:] == [said, remark]
    assert found[1].published_row[3:5] == ["seeds are alike", str(len(seeds))]
    if said == "agrees within 0.01":
        assert verdict.published_row[1:5] == [
            "0.9997" if "[" in published else "0.999", "0.9999", "0.9996 to 1.0000", "5",
        ]  # fmt: skip
        assert verdict.p == (1 / math.comb(10, 5) if "[" in published else 1 / 2**5)


def test_published_figures_over_several_lengths(tmp_path: Path) -> None:
    for seed in range(1, 9):
        write_task_run(tmp_path, "shaw", seed, {51: 1.0, 75: 0.9, 101: 0.2 + 0.01 * seed})
    within = "{scheme: shaw, value: 0.95, within: 0.01, length: 51, up_to: 100, source: Paper}"
    beyond = "{scheme: shaw, value: 0.95, within: 0.01, length: 51, up_to: 150, source: Paper}"
    (first, second) = verdicts_in(tmp_path, within, beyond)
    assert first.published_row[:3] == ["shaw in exact on copy at 51 to 100", "0.95", "0.9500"]
    assert (first.said, second.said) == ("agrees", "differs")
    change_summary(tmp_path / "copy" / "shaw-seed2", best_val_loss=math.inf)
    (first, second) = verdicts_in(tmp_path, within, beyond)
    assert (first.said, first.remarks) == ("undecided", ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"])


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_verdicts_stand_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seeds(tmp_path, "shaw", ONES)
    write_seeds(tmp_path, "nope", [0.1] * 5)
    figure = {"scheme": "shaw", "value": ONES, "within": 0.01, "length": 10, "source": "Paper; no dropout"}
    order = {"better": "shaw", "than": "nope", "length": 10}
    file = tmp_path / "claims.yaml"
    file.write_text(yaml.safe_dump([figure, order]))
    page, screen = page_in(report_of(tmp_path, claims=str(file))), capsys.readouterr().out
    row = ["shaw in exact on copy at 10", "0.9999", "0.9999", "0.9996 to 1.0000", "5", "agrees within 0.01", ""]
    assert page.lists[0][0].startswith("shown: shaw better than nope in exact on copy at 10 (shaw 1.000,")
    assert page.lists[1] == ["published: Paper; no dropout"]
    assert page.rows[1] == row
    assert row in [[*re.split(" {2,}", line), ""] for line in screen.splitlines()]
    assert "\nBy exact at 10\n\nscheme " in screen  # claims may be of another figure
    assert screen.index(f"Claims of {file}, last changed 20") < screen.index(f"- {page.lists[0][0]}\n")
