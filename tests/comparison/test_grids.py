"""Schemes that were tried with several settings: what of a run is a setting, and what chooses."""

import itertools
from pathlib import Path

import pytest
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    report_of,
    set_scheme,
    write_run,
    write_task_run,
)

from seedstats.section import Section

FACTOR = "optim.position_learning_rate_factor"


def write_factor(root: Path, pos: str, factor: float, losses: list[float], beyond: list[float]) -> None:
    """A run for each seed: its validation loss, and what it gets right beyond the lengths of training."""
    for seed, (loss, share) in enumerate(zip(losses, beyond, strict=True), start=1):
        folder = write_task_run(root / f"{pos}{factor}", pos, seed, {10: 1.0, 20: share, 30: share / 2})
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
    one = compare_folders(swept)
    assert one.chosen == ["nope", "t5 position_learning_rate_factor=8.0"]
    (table,) = (table for table in Section("copy", one)._tables if table.title == "Default and chosen settings")
    factor = "position_learning_rate_factor"
    assert table.rows == [
        ["nope", "1", "", "", "0.300", "0.300", "0.150", "0.150"],
        ["t5", "3", f"{factor}=1.0", f"{factor}=8.0", "0.200", "0.600", "0.100", "0.300"],
    ]


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_the_page_of_a_grid_has_a_figure_over_its_setting(swept: Path) -> None:
    assert (report_of(swept) / "figures" / "over_position_learning_rate_factor.svg").exists()


def test_settings_of_the_scheme_and_outside_of_it_are_factors(tmp_path: Path) -> None:
    for scale, dropout, factor, seed in itertools.product((1.0, 4.0), (0.0, 0.2), (1.0, 8.0), (1, 2)):
        loss = 4 + dropout + factor / 100 + seed + scale / 10
        folder = write_run(tmp_path / f"{scale}{dropout}{factor}", "t5", seed, loss)
        set_scheme(folder, scale=scale)
        change_config(folder, "model.dropout", dropout)
        change_config(folder, FACTOR, factor)
    one = compare_folders(tmp_path, allow_differences=True)
    means = {effect.level: effect.difference.mean for effect in one.setting_effects}
    expected = {"scale=4.0": 0.3, "position_learning_rate_factor=8.0": 0.07, "model.dropout=0.2": 0.2}
    assert means == {name: pytest.approx(mean) for name, mean in expected.items()}


def test_what_changes_with_the_setting_it_is_a_part_of_is_not_named(tmp_path: Path) -> None:
    for number, retrieval in enumerate((None, {"layer": 1, "size": 256, "k": 8, "position_bias": False})):
        change_config(write_run(tmp_path / str(number), "t5"), "model.retrieval", retrieval)
    labels = [group.label for group in compare_folders(tmp_path).groups]
    assert labels == ["t5 retrieval=null", "t5 retrieval=true"]
