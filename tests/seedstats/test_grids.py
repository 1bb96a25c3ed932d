"""Schemes that were tried with several settings: what is chosen, on what, and figures over a setting."""

from pathlib import Path

import pytest
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    page_in,
    report_of,
    set_scheme,
    write_run,
    write_task_run,
)

from poslab.comparison.grids import choices, geometric, grids, setting_panels

FACTOR = "optim.position_learning_rate_factor"


def write_factor(
    root: Path, pos: str, factor: float, losses: list[float], beyond: list[float], data: str = "copy"
) -> None:
    """A run for each seed: its validation loss, and what it gets right beyond the lengths of training."""
    for seed, (loss, share) in enumerate(zip(losses, beyond, strict=True), start=1):
        folder = write_task_run(root / f"{pos}{factor}", pos, seed, {10: 1.0, 20: share, 30: share / 2}, data=data)
        change_summary(folder, best_val_loss=loss, last_val_loss=loss)
        change_config(folder, FACTOR, factor)


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """t5 is best in the range with 8, and best beyond with 32, by luck of the first seed; nope learns nothing."""
    write_factor(tmp_path, "t5", 1.0, [0.5, 0.5], [0.2, 0.2])
    write_factor(tmp_path, "t5", 8.0, [0.3, 0.3], [0.5, 0.7])
    write_factor(tmp_path, "t5", 32.0, [0.1, 0.6], [1.0, 1.0])
    write_factor(tmp_path, "nope", 1.0, [0.4, 0.4], [0.3, 0.3])
    return tmp_path


def test_settings_are_chosen_by_the_validation_alone(swept: Path) -> None:
    nope, t5 = grids(compare_folders(swept))
    assert (nope.varied, len(nope.groups)) == ([], 1)
    assert t5.varied == ["position_learning_rate_factor"]
    assert [group.settings["position_learning_rate_factor"] for group in t5.groups] == ["1.0", "8.0", "32.0"]
    assert t5.default is t5.groups[0]
    assert t5.chosen is t5.groups[1]
    assert nope.default is nope.chosen


def test_default_and_chosen_stand_side_by_side(swept: Path) -> None:
    """With the figures of tests beyond the lengths of training, which have chosen nothing."""
    found = choices(compare_folders(swept))
    factor = "position_learning_rate_factor"
    assert found.columns == [
        "scheme", "settings tried", "default", "chosen",
        "exact at 20, default", "exact at 20, chosen", "exact at 30, default", "exact at 30, chosen",
    ]  # fmt: skip
    assert found.rows == [
        ["nope", "1", "", "", "0.300", "0.300", "0.150", "0.150"],
        ["t5", "3", f"{factor}=1.0", f"{factor}=8.0", "0.200", "0.600", "0.100", "0.300"],
    ]
    assert "held out" not in found.note
    assert "Not all schemes were tried with as many settings" in found.note


def test_versions_of_edited_code_are_no_settings_to_choose(swept: Path) -> None:
    (run,) = swept.glob("t58.0/**/t5-seed2")
    change_summary(run, scheme_fingerprint="edited")
    assert choices(compare_folders(swept)) is None


def test_any_setting_of_a_scheme_is_one_to_choose(tmp_path: Path) -> None:
    for scale, loss in ((1.0, 4.0), (32.0, 3.0)):
        set_scheme(write_run(tmp_path / str(scale), "t5", 1, loss), scale=scale)
    (grid,) = grids(compare_folders(tmp_path))
    assert (grid.told(grid.default), grid.told(grid.chosen)) == ("scale=1.0", "scale=32.0")
    found = choices(compare_folders(tmp_path))
    assert found.rows == [["t5", "2", "scale=1.0", "scale=32.0", "4.0000", "3.0000"]]
    assert "what is shown has also chosen" in found.note
    for folder in tmp_path.glob("*/*"):
        change_summary(folder, test_loss=5.0)
    found = choices(compare_folders(tmp_path))
    assert found.rows[0][4:] == ["5.0000", "5.0000"]
    assert "what is shown has also chosen" not in found.note


def test_without_a_grid_there_is_nothing_to_choose(tmp_path: Path) -> None:
    write_run(tmp_path, "t5")
    write_run(tmp_path, "shaw")
    comparison = compare_folders(tmp_path)
    assert choices(comparison) is None
    assert setting_panels({"text": comparison}) == []


def test_a_figure_over_a_setting(swept: Path) -> None:
    """A line for each scheme that has several values, a panel for each task."""
    comparison = compare_folders(swept)
    (panel,) = setting_panels({"copy": comparison, "sort": comparison})
    assert panel.title == "By position_learning_rate_factor"
    first, second = panel.figure.axes
    assert (first.get_title(), second.get_title()) == ("copy", "sort")
    assert first.get_xscale() == "log"
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "8", "32"]
    (line,) = first.get_lines()
    assert line.get_xdata().tolist() == [1, 8, 32]
    assert line.get_ydata().tolist() == pytest.approx([0.2, 0.6, 1.0])
    (legend,) = panel.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["t5"]


def test_where_nobody_tried_the_default_nothing_is_said_of_it(tmp_path: Path) -> None:
    """As in tables of results, whose columns may be no settings of a configuration."""
    for factor in (8.0, 32.0):
        write_factor(tmp_path, "t5", factor, [0.5, 0.5], [0.2, 0.2])
    found = choices(compare_folders(tmp_path))
    assert found.title == "Chosen settings"
    assert found.columns == ["scheme", "settings tried", "chosen", "exact at 20, chosen", "exact at 30, chosen"]


def test_lines_of_a_figure_are_told_by_the_other_settings(tmp_path: Path) -> None:
    for distance in (2, 4):
        for keys in (True, False):
            set_scheme(write_run(tmp_path / f"{distance}{keys}", "shaw", 1), max_distance=distance, keys=keys)
    (panel,) = setting_panels({"text": compare_folders(tmp_path)})
    (legend,) = panel.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["shaw keys=false", "shaw keys=true"]


def test_values_that_are_multiplied() -> None:
    assert all(map(geometric, ([1, 8, 32], [1, 8], [0.1, 1, 10], [8, 16, 32])))
    assert not any(map(geometric, ([1, 2, 3, 4], [0, 1, 8], [1, 2], [5])))


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_the_page_of_a_grid(swept: Path) -> None:
    folder = report_of(swept)
    rows = page_in(folder).rows
    assert ["nope", "1", "", "", "0.300", "0.300", "0.150", "0.150"] in rows
    assert "## Default and chosen settings" in (folder / "report.md").read_text()
    assert (folder / "figures" / "over_position_learning_rate_factor.svg").exists()
