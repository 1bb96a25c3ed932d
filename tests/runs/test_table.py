"""Run folders as a table of results: what each run, group and plan leaves in it."""

from pathlib import Path

import pandas as pd
import pytest
from runs_to_compare import (
    change_summary,
    compare,
    plan_of,
    set_scheme,
    table_in,
    table_of,
    write_evaluation,
    write_run,
    write_task_run,
)

from poslab.comparison.results import Results, compared
from poslab.config.nodes import default_scheme
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, UserError
from poslab.runs.evaluation import LengthLoss
from poslab.runs.load import read_runs
from poslab.runs.plan import add_to_plan, read_plan
from poslab.runs.table import run_table

UNTRAINED = {"uniform": 7.3, "unigram": 6.1, "bigram": 5.4}


def figures(table: pd.DataFrame) -> dict[tuple[str, int | None], float]:
    """Values of runs by metric and length, of a table of a single run."""
    whole = table[table["status"] != "reference"]
    lengths = [None if pd.isna(length) else int(length) for length in whole["length"]]
    return dict(zip(zip(whole["metric"], lengths, strict=True), whole["value"], strict=True))


def first_of_each(table: pd.DataFrame, name: str) -> list[str]:
    return table[name].drop_duplicates().tolist()


def test_a_run_on_a_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "t5", 3, 4.0, last_val_loss=4.25, late_fall=0.5, untrained_losses=UNTRAINED)
    table = table_in(tmp_path).table
    assert figures(table) == {
        ("last validation loss", None): 4.25,
        ("best validation loss", None): 4.0,
        ("params_scheme", None): 1000.0,
        ("tokens_per_s", None): 1500.0,
        ("wall_time_s", None): 2.5,
        ("peak_memory_mb", None): 512.0,
        ("steps", None): 6.0,
        ("late_fall", None): 0.5,
    }
    first = table.iloc[0]
    assert first["metric"] == "last validation loss"
    assert tuple(first[["name", "seed", "data", "status"]]) == ("t5", 3, "the-verdict.txt", "finished")
    assert tuple(first[["unit", "better", "look", "folder"]]) == ("nats per token", "lower", 1, str(folder))
    assert set(table.loc[table["better"] != "", "metric"]) == {"last validation loss", "best validation loss"}
    references = table[table["status"] == "reference"]
    assert references["seed"].isna().all()
    for _, of_metric in references.groupby("metric"):
        assert dict(zip(of_metric["name"], of_metric["value"], strict=True)) == {
            f"{name} model": loss for name, loss in UNTRAINED.items()
        }
    assert set(references["metric"]) == {"last validation loss", "best validation loss"}  # those that are compared
    change_summary(folder, test_loss=4.5)  # of a part that was held out
    assert first_of_each(table_in(tmp_path).table, "metric")[0] == "test loss"


def test_losses_at_a_length_of_an_evaluation_are_compared(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for name, loss in (("t5", 3.0), ("alibi", 2.0)):
            folder = write_run(tmp_path, name, seed, 4.0)
            write_evaluation(folder, [LengthLoss(512, 256, loss, last=16, last_loss=loss + 0.01 * seed)])
    results = Results(table_in(tmp_path).table, tmp_path)
    (comparison,) = compared(results, CompareConfig(metric="last_loss", length=512)).values()
    assert (comparison.metric.unit, comparison.metric.length) == ("nats per token", 512)
    assert [group.name for group in comparison.groups] == ["alibi", "t5"]
    assert next(iter(comparison.differences.values())).mean == pytest.approx(-1.0) or comparison.baseline == "alibi"


def test_what_has_no_length_leads_to_what_has(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path, "t5", seed, 4.0)
    results = Results(table_in(tmp_path).table, tmp_path)
    for asked in ({"metric": "loss", "length": 512}, {"metric": "last loss at 512"}, {"metric": "last_loss"}):
        with pytest.raises(SettingError, match=r"last_loss, at the lengths that evaluation\.lengths"):
            compared(results, CompareConfig(**asked))


def test_a_run_on_a_task(tmp_path: Path) -> None:
    """First by the metric and length by which it is compared: the first length beyond those of training."""
    write_task_run(tmp_path, "t5", 1, {5: 1.0, 10: 0.9, 20: 0.5, 40: 0.25}, solved_step=250)
    table = table_in(tmp_path).table
    assert tuple(table.iloc[0][["metric", "length", "value", "unit", "better"]]) == (
        "exact", 20, 0.5, "of the examples", "higher",
    )  # fmt: skip
    exact = table[table["metric"] == "exact"]
    assert exact["length"].tolist()[:4] == [20, 5, 10, 40]
    chance = exact[exact["status"] == "reference"]
    assert dict(zip(chance["length"], chance["value"], strict=True)) == dict.fromkeys((5, 10, 20, 40), 0.2)
    assert set(table.loc[table["better"] == "higher", "metric"]) == {"exact", "accuracy"}
    found = figures(table)
    assert (found["solved", None], found["steps_to_solve", None]) == (1, 250)
    write_task_run(tmp_path / "never", "t5", 1, {10: 0.5}, steps=400)
    found = figures(table_in(tmp_path / "never").table)
    assert (found["solved", None], found["steps_to_solve", None]) == (0, 400)


def test_the_usual_length_is_that_of_all_runs(tmp_path: Path) -> None:
    """Also where the first run was tested at fewer lengths; there it is missing."""
    write_task_run(tmp_path, "absolute", 1, {10: 0.5})
    write_task_run(tmp_path, "t5", 1, {10: 1.0, 20: 0.5})
    table = table_in(tmp_path).table
    assert table.iloc[:2][["name", "length", "status"]].to_numpy().tolist() == [
        ["absolute", 20, "missing"],
        ["t5", 20, "finished"],
    ]


# Seeds that are missing or diverged


def test_missing_and_diverged_seeds_have_rows_of_what_is_compared(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path, "absolute", seed)
        write_run(tmp_path, "t5", seed)
    plan = plan_of(tmp_path, range(1, 5))
    change_summary(tmp_path / "t5-seed2", last_val_loss=None)
    found = table_of(read_runs([str(tmp_path)])[0], plan=plan)
    for metric in ("last validation loss", "best validation loss"):
        rows = found.table[(found.table["metric"] == metric) & (found.table["name"] == "t5")]
        assert rows["status"].tolist() == ["finished", "diverged", "finished", "missing"]
        assert rows["value"].isna().tolist() == [False, True, False, True]
        assert rows["folder"].tolist()[1:] == [str(tmp_path / f"t5-seed{seed}") for seed in (2, 3)] + [""]
    assert set(found.table.loc[found.table["metric"] == "steps", "status"]) == {"finished"}
    assert [(left.folder.name, left.reason) for left in found.left_out] == [("t5-seed2", "it diverged, by step 6")]


def test_without_a_plan_a_seed_of_any_group_is_missing_elsewhere(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "t5", 2)
    table = table_in(tmp_path).table
    rows = table[table["metric"] == "last validation loss"]
    assert rows[["name", "seed", "status"]].to_numpy().tolist() == [
        ["absolute", 1, "finished"], ["absolute", 2, "missing"], ["t5", 1, "missing"], ["t5", 2, "finished"],
    ]  # fmt: skip


def test_a_group_that_is_lost_has_rows(tmp_path: Path) -> None:
    """And its settings, and its place: it would have been the baseline, or might have been."""
    for distance in (4, 16):
        set_scheme(write_run(tmp_path / str(distance), "shaw"), max_distance=distance)
    write_run(tmp_path, default_scheme())
    plan = plan_of(tmp_path, range(1, 3))
    runs, _ = read_runs([str(tmp_path / "4")])
    table = table_of(runs, plan=plan).table
    rows = table[table["metric"] == "last validation loss"]
    assert rows[["name", "max_distance", "seed", "status"]].to_numpy().tolist() == [
        [default_scheme(), "", 1, "missing"], [default_scheme(), "", 2, "missing"],
        ["shaw", "16", 1, "missing"], ["shaw", "16", 2, "missing"],
        ["shaw", "4", 1, "finished"], ["shaw", "4", 2, "missing"],
    ]  # fmt: skip
    assert compare(runs, plan=plan).planned.lost == [default_scheme(), "shaw max_distance=16"]


def test_a_lost_group_of_another_version_of_the_source(tmp_path: Path) -> None:
    """It has the name and the settings of the one that is there."""
    for seed in (1, 2):
        write_run(tmp_path, "t5", seed)
    plan = plan_of(tmp_path, range(1, 3))
    for seed in (1, 2):
        change_summary(tmp_path / f"t5-seed{seed}", scheme_fingerprint="edited")
    runs, _ = read_runs([str(tmp_path)])
    plan += plan_of(tmp_path, range(1, 3))
    table = table_of(runs, plan=plan).table
    rows = table[table["metric"] == "last validation loss"]
    assert rows[["source", "seed", "status"]].to_numpy().tolist() == [
        ["another version", 1, "missing"], ["another version", 2, "missing"], ["", 1, "finished"], ["", 2, "finished"],
    ]  # fmt: skip


def test_seeds_that_were_planned_after_a_comparison_have_a_later_look(tmp_path: Path) -> None:
    for seed in range(1, 4):
        write_run(tmp_path, "t5", seed)
    (tmp_path / "report").mkdir()
    for most in (2, 3, 5):
        add_to_plan(tmp_path, plan_of(tmp_path, range(1, most + 1)))
        (tmp_path / "report" / "report.html").touch()
    table = table_of(read_runs([str(tmp_path)])[0], plan=read_plan(tmp_path)).table
    looks = table[table["metric"] == "last validation loss"].set_index("seed")["look"]
    assert looks.to_dict() == {1: 1, 2: 1, 3: 2, 4: 3, 5: 3}


# Order, caveats, names


def test_the_natural_baseline_comes_first(tmp_path: Path) -> None:
    """The default scheme, one that knows nothing of position, then by name; the most usual settings of each first."""
    for buckets in (8, 32):
        set_scheme(write_run(tmp_path / str(buckets), "t5"), num_buckets=buckets)
    for pos in ("shaw", "nope", default_scheme()):
        write_run(tmp_path, pos)
    table = table_in(tmp_path).table
    assert first_of_each(table, "name") == [default_scheme(), "nope", "shaw", "t5"]
    assert first_of_each(table[table["name"] == "t5"], "num_buckets") == ["32", "8"]


def test_of_an_edited_source_the_version_with_more_runs_comes_first(tmp_path: Path) -> None:
    for seed, source in ((1, "bb"), (2, "bb"), (3, "aa")):
        write_run(tmp_path, "t5", seed, scheme_fingerprint=source)
    assert first_of_each(table_in(tmp_path).table, "source") == ["bb", "aa"]


def test_caveats_stand_in_the_first_row_of_each_metric(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "t5", 1, device="cuda:0")
    for folder in tmp_path.iterdir():
        change_summary(folder, last_val_step=4)
    table = table_in(tmp_path).table
    early = "the last validation of 2 runs was before their last step (step 4 of 6)"
    for metric, rows in table.groupby("metric"):
        said, *others = rows["caveat"]
        assert said.startswith("several devices: cpu (x86_64), cuda:0; ")
        assert said.endswith(early) == metric.endswith("validation loss")
        assert set(others) <= {""}


def test_what_is_not_to_be_compared_names_its_data(tmp_path: Path) -> None:
    write_task_run(tmp_path, "t5", 1, {10: 1.0})
    write_task_run(tmp_path, "shaw", 1, {10: 1.0}, params_trunk=5)
    write_run(tmp_path, "t5", 1)
    with pytest.raises(UserError, match=r"^copy: .*params_trunk: "):
        table_in(tmp_path)
    assert len(table_in(tmp_path, allow_differences=True).runs) == 3
    with pytest.raises(UserError, match="no finished run"):
        run_table({"text": []})
