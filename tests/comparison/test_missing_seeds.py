"""Runs that are missing, damaged or diverged: each is said, and none makes a claim that was not there before."""

import json
import math
import shutil
from pathlib import Path

import pytest
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    page_in,
    plan_of,
    report_of,
    sentences,
    table_in,
    write_run,
    write_sweep,
)

from poslab.commands.compare import run_comparison
from poslab.config.scripts import CompareConfig
from poslab.errors import UserError
from poslab.runs.plan import PLAN, add_to_plan, read_plan
from seedstats.answers import caveats, findings, fine_print, headline


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """t5 is better, and shaw isn't."""
    write_sweep(tmp_path, absolute=0.0, shaw=0.0, t5=-0.1)
    add_to_plan(tmp_path, plan_of(tmp_path))
    return tmp_path


def said_of(folder: Path) -> dict[str, str]:
    comparison = compare_folders(folder, plan=read_plan(folder))
    labels = ("t5", "shaw")
    return {label: said for said in sentences(comparison) for label in labels if label in said.split(" and ")[0]}


def test_missing_seeds_are_said_beside_the_claim(swept: Path) -> None:
    assert sentences(compare_folders(swept, plan=read_plan(swept))) == sentences(compare_folders(swept))
    shutil.rmtree(swept / "t5-seed4")
    (swept / "t5-seed5" / "summary.json").write_text("{")
    said = said_of(swept)
    assert said["t5"].startswith("t5 is better than absolute: 0.1")
    assert said["t5"].endswith("2 of 5 planned seeds are missing (4, 5).")
    for seed in (1, 2, 3):
        shutil.rmtree(swept / f"t5-seed{seed}")
    comparison = compare_folders(swept, plan=read_plan(swept))
    assert caveats(comparison) == ["t5 has no finished run: 5 of 5 seeds are missing."]
    assert comparison.differences["shaw"].comparisons == 2


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_runs_picked_from_a_sweep_are_called_so(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = sorted(str(path) for path in swept.iterdir() if path.name.startswith(("absolute", "t5")))
    run_comparison(CompareConfig(named, out=str(swept / "picked")), "")
    said = "caveat: picked from a sweep that has shaw as well; whoever picks by the figures needs the p-values of all"
    assert f"{said}: runs={swept}" in capsys.readouterr().out
    report_of(swept)
    assert "picked from" not in capsys.readouterr().out


def test_without_a_plan_the_seeds_of_any_group_count(swept: Path) -> None:
    (swept / PLAN).unlink()
    shutil.rmtree(swept / "t5-seed4")
    shutil.rmtree(swept / "absolute-seed4")
    assert "1 of 5 planned seeds is missing (4)." in said_of(swept)["t5"]


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_a_run_that_diverged_is_on_the_page(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = swept / "t5-seed3"
    content = json.loads((folder / "summary.json").read_text()) | {"last_val_loss": None, "steps": 3}
    (folder / "summary.json").unlink()
    (folder / "diverged.json").write_text(json.dumps(content))
    (swept / "two\nlines\x1b[2J").mkdir()
    page = page_in(report_of(swept))
    assert any("1 of 5 seeds of t5 diverged; in the others" in answer for answer in page.lists[0])
    assert page.headlines[0].endswith(" Left out, because seeds diverged: t5.")
    assert page.results[-1][:2] == ["t5", "4 (1 diverged)"]  # behind those that are worse on average
    out = capsys.readouterr().out
    assert f"left out  {folder}: it diverged, by step 3" in out
    assert f"left out  {swept / 'two lines·[2J'}: no run in it" in out
    for seed in (1, 2, 4, 5):
        change_summary(swept / f"t5-seed{seed}", best_val_loss=math.inf, last_val_loss=math.inf)
    page = page_in(report_of(swept))
    assert "t5 has no finished run: 5 of 5 seeds diverged." in page.lists[1]
    assert page.results[-1][:4] == ["t5", "0 (5 diverged)", "n/a", ""]


def test_a_scheme_that_always_diverges_counts_as_failed(tmp_path: Path) -> None:
    write_sweep(tmp_path, absolute=0.0, shaw=0.0, t5=-0.1)
    add_to_plan(tmp_path, plan_of(tmp_path))
    assert fine_print(compare_folders(tmp_path)).startswith("No run of 5 seeds diverged.")
    for seed in range(1, 6):
        change_summary(tmp_path / f"shaw-seed{seed}", best_val_loss=math.inf, last_val_loss=math.inf)
    one = compare_folders(tmp_path, plan=read_plan(tmp_path))
    assert headline(one).startswith("t5 is best: better than absolute by 0.1")
    assert headline(one).endswith(" Left out, because there is no finished run: shaw.")
    assert any("t5 is better" in said for said in findings(one))
    assert fine_print(one) == ""


def test_what_diverged_with_other_settings_says_nothing_of_these(swept: Path) -> None:
    change_summary(swept / "t5-seed3", best_val_loss=math.inf)
    change_config(swept / "t5-seed3", "optim.learning_rate", 10.0)
    plan = read_plan(swept)
    reasons = {left.folder.name: left.reason for left in table_in(swept, plan=plan).left_out}
    assert reasons["t5-seed3"].endswith("it has other settings than those compared")
    assert "1 of 5 planned seeds is missing (3)" in "".join(sentences(compare_folders(swept, plan=plan)))


def test_a_second_sweep_adds_to_the_plan(tmp_path: Path) -> None:
    write_run(tmp_path, "t5")
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 3)))
    before = (tmp_path / PLAN).read_text()
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 2)))
    assert (tmp_path / PLAN).read_text() == before
    shutil.rmtree(tmp_path / "t5-seed1")
    write_run(tmp_path, "shaw")
    add_to_plan(tmp_path, plan_of(tmp_path, range(2, 4)))
    assert {group.scheme: group.seeds for group in read_plan(tmp_path)} == {"t5": [1, 2], "shaw": [2, 3]}


def test_a_plan_that_grows_after_a_comparison_says_so(tmp_path: Path) -> None:
    """Not for groups that are new, nor for seeds that were added before anything was compared."""
    write_run(tmp_path, "t5")
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 3)))
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 4)))
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").touch()
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 4)))
    assert [group.earlier for group in read_plan(tmp_path)] == [[]]
    write_run(tmp_path, "shaw")
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 6)))
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 8)))
    earlier = {group.scheme: group.earlier for group in read_plan(tmp_path)}
    assert earlier == {"t5": [[1, 2, 3], [1, 2, 3, 4, 5]], "shaw": [[1, 2, 3, 4, 5]]}


@pytest.mark.parametrize("text", ["{", "5", "- 5", "- {scheme: t5}", "- {scheme: t5, settings: [], data: a}"])
def test_what_is_no_plan(text: str, tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(UserError, match=r"plan\.yaml: ") as refusal:
        read_plan(tmp_path)
    assert "\n" not in str(refusal.value)
