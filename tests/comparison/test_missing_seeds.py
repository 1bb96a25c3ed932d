"""Runs that are missing, damaged or diverged: each is said, and none makes a claim that was not there before."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_figures import differences
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
from poslab.comparison.answers import answers
from poslab.config.scripts import CompareConfig
from poslab.errors import UserError
from poslab.metric import EXACT, Metric, loss_metric
from poslab.runs.plan import PLAN, add_to_plan, read_plan
from poslab.statistics.findings import finding
from poslab.statistics.paired import Difference

SEEDS = range(1, 9)
NATS = loss_metric(None)
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


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.sets(st.tuples(st.sampled_from(sorted(EFFECTS)), st.sampled_from(SEEDS)), min_size=1),
    st.booleans(),
)
def test_no_claim_comes_of_runs_that_are_gone(
    seed: int, heavy: bool, lost: set[tuple[str, int]], with_plan: bool
) -> None:
    """Whichever are deleted; without a plan, of those that leave a trace: a group, and each seed in some group."""
    values = simulated(seed, EFFECTS, heavy=heavy)
    left = {name: {s: x for s, x in of.items() if (name, s) not in lost} for name, of in values.items()}
    there = {name: of for name, of in left.items() if of or name == "base"}
    if not with_plan and (len(there) < len(values) or set().union(*left.values()) != {*SEEDS}):
        return
    planned = dict.fromkeys(there, SEEDS)
    assert claims(there, planned, len(EFFECTS) - 1) <= claims(values)


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
    assert sentence("shaw", "base", d) == "shaw is worse than base: of shaw, 8 of 8 seeds diverged"
    assert sentence("base", "shaw", d.reversed) == "base is better than shaw: of shaw, 8 of 8 seeds diverged"
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


# Folders


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


def test_missing_seeds_are_said_and_nothing_is_claimed(swept: Path) -> None:
    assert sentences(compare_folders(swept, plan=read_plan(swept))) == sentences(compare_folders(swept))
    shutil.rmtree(swept / "t5-seed4")
    (swept / "t5-seed5" / "summary.json").write_text("{")
    said = said_of(swept)
    shown = "No difference between t5 and absolute can be shown"
    assert said["t5"].startswith(f"{shown}: 2 of 5 seeds are missing (4, 5); so far -0.1")
    for seed in (1, 2, 3):
        shutil.rmtree(swept / f"t5-seed{seed}")
    assert said_of(swept)["t5"] == "t5 has no finished run: 5 of 5 seeds are missing"
    comparison = compare_folders(swept, plan=read_plan(swept))
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
    assert ": 1 of 5 seeds is missing (4); so far" in said_of(swept)["t5"]


def test_a_lost_baseline_leaves_no_other_to_claim_by(swept: Path) -> None:
    for seed in range(1, 6):
        shutil.rmtree(swept / f"absolute-seed{seed}")
    plan = read_plan(swept)
    assert sentences(compare_folders(swept, plan=plan))[0].startswith(
        "No difference between t5 and shaw can be shown: "
        "the baseline would be absolute, which has no finished run; so far -0.1"
    )
    assert "is better than shaw by 0.1" in sentences(compare_folders(swept, plan=plan, baseline="shaw"))[0]


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_a_run_that_diverged_is_on_the_page(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = swept / "t5-seed3"
    content = json.loads((folder / "summary.json").read_text()) | {"last_val_loss": None, "steps": 3}
    (folder / "summary.json").unlink()
    (folder / "diverged.json").write_text(json.dumps(content))
    page = page_in(report_of(swept))
    assert any("of t5, 1 of 5 seeds diverged; in the others" in answer for answer in page.lists[0])
    assert any("; left out: t5, of which a seed diverged" in answer for answer in page.lists[0])
    rows = {row[0]: row for row in reversed(page.rows[:4])}
    assert rows["t5"][1] == "4 (1 diverged)"
    assert next(iter(rows)) == "t5"  # behind those that are worse on average
    out = capsys.readouterr().out
    assert f"left out  {folder}: it diverged, by step 3" in out
    for seed in (1, 2, 4, 5):
        change_summary(swept / f"t5-seed{seed}", best_val_loss=math.inf, last_val_loss=math.inf)
    assert said_of(swept)["t5"] == "t5 has no finished run: 5 of 5 seeds diverged"
    rows = page_in(report_of(swept)).tables[0]
    assert rows[-1][:4] == ["t5", "0 (5 diverged)", "n/a", ""]


def test_a_scheme_that_always_diverges_counts_as_failed(tmp_path: Path) -> None:
    write_sweep(tmp_path, absolute=0.0, shaw=0.0, t5=-0.1)
    add_to_plan(tmp_path, plan_of(tmp_path))
    unfailed = "none of the 5 seeds of each scheme failed"
    assert any(said.startswith(unfailed) for said in answers(compare_folders(tmp_path)))
    for seed in range(1, 6):
        change_summary(tmp_path / f"shaw-seed{seed}", best_val_loss=math.inf, last_val_loss=math.inf)
    found = answers(compare_folders(tmp_path, plan=read_plan(tmp_path)))
    assert any("t5 is better" in said for said in found)
    assert not any(unfailed in said for said in found)


def test_what_diverged_with_other_settings_says_nothing_of_these(swept: Path) -> None:
    change_summary(swept / "t5-seed3", best_val_loss=math.inf)
    change_config(swept / "t5-seed3", "optim.learning_rate", 10.0)
    plan = read_plan(swept)
    reasons = {left.folder.name: left.reason for left in table_in(swept, plan=plan).left_out}
    assert reasons["t5-seed3"].endswith("it has other settings than those compared")
    assert "1 of 5 seeds is missing (3)" in "".join(sentences(compare_folders(swept, plan=plan)))


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
    with pytest.raises(UserError, match=r"plan\.yaml: can't be read as the plan of a sweep: ") as refusal:
        read_plan(tmp_path)
    assert "\n" not in str(refusal.value)
