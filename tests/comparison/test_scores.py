"""Comparisons of tasks: by what, in which direction, and each task by itself."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from common import compose_config
from refusals import refused
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    markdown_rows,
    page_in,
    report_of,
    sentences,
    write_run,
    write_sweep,
    write_task_run,
)

from poslab.errors import UserError
from poslab.sweep import sweep
from poslab.sweep.job_list import Job
from seedstats.comparison import Comparison

SHAW = [0.9, 0.7, 0.8, 0.8, 0.9, 0.7, 0.8, 0.84]  # of eight seeds
BASE = [0.2, 0.1, 0.1, 0.3, 0.2, 0.2, 0.1, 0.2]


def write_task(root: Path, data: str = "copy", **exact: list[float]) -> None:
    """Runs of a task trained up to 10: of each scheme, what each seed gets right at 20; a quarter of it at 40."""
    for pos, shares in exact.items():
        for seed, share in enumerate(shares, start=1):
            write_task_run(root, pos, seed, {10: 1.0, 20: share, 40: share / 4}, data=data, answers={})


def compared(root: Path, *shares: tuple[str, list[float]], **settings: object) -> Comparison:
    write_task(root, **dict(shares))
    return compare_folders(root, **settings)


def schemes_in(folder: Path) -> list[list[str]]:
    """Heads and rows of the page's tables of schemes, but for the heads above the heads."""
    return [row for row in page_in(folder).rows if len(row) > 10]


def test_a_task_is_compared_by_what_is_exact_beyond_its_range(tmp_path: Path) -> None:
    """Higher is better, whatever the losses say."""
    comparison = compared(tmp_path, ("absolute", BASE), ("shaw", SHAW))
    assert comparison.metric.title == "exact at 20"
    assert [group.label for group in comparison.groups] == ["shaw", "absolute"]
    assert comparison.groups[0].values == dict(enumerate(SHAW, start=1))
    found = comparison.differences["shaw"]
    assert found.mean == pytest.approx(sum(SHAW) / 8 - sum(BASE) / 8)
    low, high = found.interval
    numbers = f"{found.mean:.2f} of the examples [{low:.2f}, {high:.2f}], 8 seeds."
    assert sentences(comparison) == [f"shaw is better than absolute: {numbers}"]
    turned = compare_folders(tmp_path, baseline="shaw")
    assert sentences(turned) == [f"absolute is worse than shaw: {numbers}"]


def test_without_lengths_beyond_the_range_the_longest_counts(tmp_path: Path) -> None:
    write_task_run(tmp_path, "shaw", 1, {5: 0.5, 10: 0.25})
    assert compare_folders(tmp_path).metric.title == "exact at 10"


def test_a_text_has_its_loss_and_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path)
    with refused("metric", "exact", "last validation loss", "best validation loss"):
        compare_folders(tmp_path, metric="exact")


def test_runs_without_the_figure_are_missing_seeds(tmp_path: Path) -> None:
    write_task(tmp_path, absolute=BASE[:2], shaw=SHAW[:3])
    write_task_run(tmp_path, "absolute", 3, {10: 0.5})
    (said,) = sentences(compare_folders(tmp_path))
    assert said.startswith("shaw was better than absolute: 0.65 of the examples in the mean of 2 seeds")
    assert said.endswith("1 of 3 planned seeds is missing (3).")


def test_a_scheme_without_the_figure_is_lost(tmp_path: Path) -> None:
    """It would have been the baseline, so no other group takes its place in a claim."""
    write_task(tmp_path, shaw=SHAW, t5=BASE)
    write_task_run(tmp_path, "absolute", 1, {10: 0.5})
    comparison = compare_folders(tmp_path)
    assert [group.label for group in comparison.groups] == ["shaw", "t5"]
    said, lost = sentences(comparison)
    assert "is shown: the baseline would be absolute, which has no finished run" in said
    assert lost == "absolute has no finished run: 8 of 8 seeds are missing."


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_the_page_of_a_text_says_nothing_of_tasks_nor_of_sign_flips(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=-0.5)
    text = (report_of(tmp_path) / "report.md").read_text()
    assert "Metric: last validation loss, nats per token. Lower is better. The loss is that of the last" in text
    assert not any(words in text for words in ("xact test", "What comes out wrong", "Who solves the range"))


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_page_and_table_say_what_the_figures_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(tmp_path, absolute=BASE, shaw=SHAW)
    folder = report_of(tmp_path, length=40)
    header, best, _, chance = schemes_in(folder)
    best_by_head = dict(zip(header, best, strict=True))
    assert best[:3] == ["shaw", "8", f"{sum(SHAW) / 32:.3f}"]
    assert (best_by_head["exact at 10"], best_by_head["exact at 20"]) == ("1.000", f"{sum(SHAW) / 8:.3f}")
    assert (header[2], chance[:3]) == ("exact at 40", ["(most frequent answer)", "", "0.200"])
    assert best in markdown_rows(folder)
    text = (folder / "report.md").read_text()
    assert "Metric: exact at 40, share of the examples. Higher is better. Training ended at length 10." in text
    assert "An exact test must agree" in text
    assert "measuring" not in capsys.readouterr().out
    values = pd.read_csv(folder / "results.csv").set_index(["name", "seed", "metric", "length"])["value"]
    assert values["shaw", 2, "exact", 20] == SHAW[1]
    assert values["absolute", 8, "accuracy", 10] == 1


# Several tasks and texts in one folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("three")
    write_task(root, "copy", absolute=BASE, shaw=SHAW)
    write_task(root, "sort", absolute=SHAW, shaw=BASE, t5=SHAW)
    for folder in (root / "sort").iterdir():  # as a task's own recipe has it
        change_config(folder, "model.num_layers", 1)
        change_summary(folder, steps=1000, params_trunk=500)
    write_sweep(root / "text", absolute=0.0, shaw=-0.1)
    return root


@pytest.fixture
def three(written: Path, tmp_path: Path) -> Path:
    """Two tasks and a text."""
    return Path(shutil.copytree(written, tmp_path / "three"))


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_within_one_task_runs_may_differ_in_nothing_but_the_scheme(three: Path) -> None:
    change_summary(three / "sort" / "shaw-seed2", steps=2000)
    with pytest.raises(UserError, match=r"^sort: .*steps: 1000 "):
        report_of(three)


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_what_is_chosen_counts_where_it_is_known(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = report_of(three, length=40, baseline="t5")
    compared = [row[2] for row in schemes_in(folder) if row[:2] == ["", "n"]]
    assert compared == ["exact at 40", "exact at 40", "last validation loss"]
    notes = capsys.readouterr().err
    assert "note: baseline=t5: unknown; valid: " in notes
    assert "note: length=40: last validation loss is of the whole run, at no length; the default is used" in notes
    with refused("length", "41", "10", "20", "40"):
        report_of(three, length=41)
    with refused("baseline", "t6"):
        report_of(three, baseline="t6")


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_one_task_with_several_settings(tmp_path: Path) -> None:
    for symbols in (8, 16):
        write_task(tmp_path / str(symbols), absolute=BASE[:2], shaw=SHAW[:2])
        for folder in (tmp_path / str(symbols) / "copy").iterdir():
            change_config(folder, "data.vocabulary", symbols)
            change_summary(folder, data_sha256=f"{symbols}" * 32)
    text = (report_of(tmp_path) / "report.md").read_text()
    assert re.findall(r"^## (copy.*)$", text, flags=re.MULTILINE) == ["copy vocabulary=16", "copy vocabulary=8"]


def test_a_sweeps_table_says_how_a_task_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task_run(tmp_path, "shaw", 1, {10: 1.0, 20: 0.5})
    write_run(tmp_path, loss=3.25)
    runs = sorted(summary.parent for summary in tmp_path.rglob("summary.json"))
    sweep._conclude([Job([], folder, compose_config("pos=shaw")) for folder in runs], tmp_path)
    table = capsys.readouterr().out
    assert "exact 1.000 at 10, 0.500 at 20" in table
    assert "3.2500" in table
