"""Verdicts on registered contrasts."""

import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs_to_compare import change_summary, compare_folders, page_in, plan_of, report_of, write_sweep, write_task_run

from poslab.comparison.contrasts import Verdict, verdict_table, verdicts
from poslab.config.contrasts import Contrast, Published, parse_contrast, read_registrations, register
from poslab.config.fields import typed
from poslab.statistics.permutation import seeds_to_claim


def verdicts_in(root: Path, *contrasts: str) -> list[Verdict]:
    register(root, [parse_contrast(yaml.safe_load(contrast), "contrast") for contrast in contrasts], 0)
    return verdicts_of(root)


def verdicts_of(root: Path, **settings: Any) -> list[Verdict]:
    """Return verdicts on what was registered before."""
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir()]
    return verdicts(read_registrations(root), {folder.name: compare_folders(folder, **settings) for folder in folders})


def write_seeds(root: Path, pos: str, shares: Iterable[float], data: str = "copy") -> None:
    for seed, share in enumerate(shares, start=1):
        write_task_run(root, pos, seed, {10: share}, data=data)


BETTER = "{better: shaw, than: nope, data: copy, length: 10, by: 0.2}"
EIGHT = [1.0, 0.99, 0.98, 1.0, 0.97, 1.0, 1.0, 0.99]


def test_a_contrast_that_is_shown(tmp_path: Path) -> None:
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
        return [(verdict.said, "; ".join(verdict.remarks)) for verdict in verdicts_of(tmp_path, plan=plan)]

    register(tmp_path, [parse_contrast(yaml.safe_load(contrast), "contrast") for contrast in (BETTER, every)], 0)
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
    (verdict,) = verdicts_of(tmp_path)
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
    verdict, *_ = verdicts_in(tmp_path, *others)
    among = "all 3 seeds agree, but 3 can't show one of 10 contrasts, 8 can: go on with seed=1,2,3,4,5,6,7,8"
    assert (verdict.p, verdict.remarks) == (1.0, [among])
    assert [seeds_to_claim(family, sides=1) for family in (1, 2, 10, 12, 13)] == [5, 6, 8, 8, 9]


def test_the_opposite_of_a_contrast(tmp_path: Path) -> None:
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
    *_, verdict = verdicts_in(tmp_path, control)
    assert verdict.p_opposite_alone == 3 / 2**5  # it may be false of any of three
    assert "5 can't show one of 2 contrasts, 7 can" in verdict.remarks[0]


def test_of_losses_less_is_better(tmp_path: Path) -> None:
    write_sweep(tmp_path / "text", seeds=5, shaw=-0.5, t5=0.0)
    better, worse = verdicts_in(tmp_path, "{better: shaw, than: t5, by: 0.1}", "{better: t5, than: shaw}")
    assert (better.said, worse.said) == ("not shown", "not shown")
    assert (better.p_alone, worse.p_opposite_alone) == (1 / 2**5, 1 / 2**5)
    assert "5 can't show one of 2 contrasts, 6 can: go on with seed=1,2,3,4,5,6" in better.sentence


def test_contrasts_without_runs(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [1.0])
    write_seeds(tmp_path, "nope", [1.0])
    contrasts = (
        BETTER, "{scheme: t5, at_least: 0.5, data: copy, length: 10}",
        "{scheme: shaw, at_least: 0.5, data: copy, length: 11}",
        "{scheme: shaw, at_least: 0.5, data: sort, length: 10}",
    )  # fmt: skip
    found = verdicts_in(tmp_path, *contrasts)
    assert {verdict.said for verdict in found} == {"not tested"}
    assert [verdict.remarks for verdict in found] == [
        ["one seed of shaw and nope says nothing about chance"],
        ["no finished run of t5"],
        ["no figures of shaw"],
        ["no finished run on sort"],
    ]
    assert all(len(verdict.row) == len(verdict_table(found).columns) for verdict in found)


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_contrasts_stand_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that were registered late say so."""
    for data in ("copy", "reverse"):
        write_seeds(tmp_path, "shaw", [1.0] * 5, data)
        write_seeds(tmp_path, "nope", [0.1] * 5, data)
    register(tmp_path, [parse_contrast(yaml.safe_load(BETTER), "")], 1)
    page = page_in(report_of(tmp_path))
    sentence = (
        "shown: shaw better than nope by at least 0.2 in exact on copy at 10 (shaw 1.000, nope 0.100; n = 5, "
        "p = 0.031); registered after 1 run was finished"
    )
    assert page.lists[0] == [sentence]
    assert page.rows[0][:2] == ["contrast", "verdict"]
    screen = capsys.readouterr().out
    assert screen.index(f"- {sentence}\n") < screen.index("\ncopy\n")


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
        ([], "value: 0.999, within: 0.01", "not comparable", "no finished run of shaw"),
    ],
)  # fmt: skip
def test_published_figures(seeds: list[float], published: str, said: str, remark: str, tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", seeds)
    write_seeds(tmp_path, "nope", [0.1] * (len(seeds) or 5))
    claim = f"{{scheme: shaw, {published}, data: copy, length: 10, source: Paper}}"
    untested = "{scheme: nope, value: 0.1, data: copy, length: 10, source: Paper}"  # counts for no correction
    verdict, *_ = found = verdicts_in(tmp_path, claim, untested)
    assert verdict.published_row[-2:] == [said, remark]
    assert found[1].published_row[3:5] == ["seeds are alike", str(len(seeds) or 5)]
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
    (first, second) = verdicts_of(tmp_path)
    assert (first.said, first.remarks) == ("undecided", ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"])


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_published_figures_stand_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seeds(tmp_path, "shaw", ONES)
    write_seeds(tmp_path, "nope", [0.1] * 5)
    figure = {"scheme": "shaw", "value": ONES, "length": 10}
    order = {"better": "shaw", "than": "nope", "length": 10}
    settings = {"source": "Paper", "settings": "exact", "differs": "no dropout", "within": 0.01}
    published = typed(Published, settings | {"figures": [figure], "contrasts": [order]}, "", {Contrast: parse_contrast})
    register(tmp_path, list(published.claims.values()), 1)
    page, screen = page_in(report_of(tmp_path)), capsys.readouterr().out
    row = ["shaw in exact on copy at 10", "0.9999", "0.9999", "0.9996 to 1.0000", "5", "agrees within 0.01", ""]
    assert page.lists[0][0].startswith("agrees: shaw better than nope in exact on copy at 10 (shaw 1.000,")
    assert page.lists[1] == ["published: Paper; exact settings, but no dropout"]
    assert page.rows[1] == row
    assert row in [[*re.split(" {2,}", line), ""] for line in screen.splitlines()]
    assert "\nBy exact at 10\n\nscheme " in screen  # contrasts may be of another figure
