"""Which validation's loss is compared: what has chosen itself says so wherever it stands."""

import re
from pathlib import Path

import pytest
from refusals import refused
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    page_in,
    report_of,
    sentences,
    write_run,
    write_sweep,
    write_task_run,
)

from seedstats.figures import scores_figure

LATE = 0.05  # by which the last validation of the second scheme is above its best


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """t5 has the better minimum, and ends where absolute does."""
    losses = write_sweep(tmp_path, absolute=0.0, t5=-LATE)
    for seed, loss in losses["t5"].items():
        change_summary(tmp_path / f"t5-seed{seed}", last_val_loss=loss + LATE)
    return tmp_path


def test_the_end_of_the_schedule_is_compared_unless_the_best_is_asked_for(swept: Path) -> None:
    last, best = compare_folders(swept), compare_folders(swept, validation="best")
    assert last.metric.label == "last validation loss, nats per token"
    assert sentences(last)[0].startswith("t5 and absolute are equal within 0.02 nats: -0.004 nats [")
    assert best.metric.label == "best validation loss, nats per token"
    assert re.match(r"t5 is better than absolute: 0\.05\d* nats \[0\.0\d+, 0\.0\d+\], 5 seeds\.", sentences(best)[0])
    assert scores_figure(best).panels[1].axes[0].get_xlabel() == "best validation loss, nats per token"


@pytest.mark.usefixtures("no_figures")
def test_a_page_of_best_validations_says_so(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = report_of(swept, validation="best")
    page, text = page_in(folder), (folder / "report.md").read_text()
    assert page.tables[0][1][2] == "best validation loss"
    assert "the lowest of several, so it is biased downwards" in text
    assert "  n  best validation loss" in capsys.readouterr().out
    assert "No checkpoint was selected by it" in (report_of(swept) / "report.md").read_text()


def test_what_was_held_out_is_compared_and_has_no_other_validation(tmp_path: Path) -> None:
    change_summary(write_run(tmp_path, "t5"), test_loss=3.0)
    comparison = compare_folders(tmp_path)
    assert (comparison.groups[0].values, comparison.metric.label) == ({1: 3.0}, "test loss, nats per token")
    with refused("validation", "best"):
        compare_folders(tmp_path, validation="best")


def test_a_task_s_metric_is_of_tests(tmp_path: Path) -> None:
    change_summary(write_task_run(tmp_path, "t5", 1, {10: 1.0, 20: 0.5}), best_val_loss=0.25)
    with refused("validation", "best"):
        compare_folders(tmp_path, validation="best")
    assert compare_folders(tmp_path, metric="loss").groups[0].values == {1: 4.0}
    assert compare_folders(tmp_path, metric="loss", validation="best").groups[0].values == {1: 0.25}


def test_what_stopped_on_the_validation_or_before_its_end_is_a_caveat(swept: Path) -> None:
    assert compare_folders(swept).caveats == []
    for folder in swept.iterdir():
        change_config(folder, "early_stopping_patience", 3)
        change_summary(folder, last_val_step=4)
    assert compare_folders(swept).caveats == [
        "early stopping: when to stop was chosen on the validation data that are compared",
        "the last validation of 10 runs was before their last step (step 4 of 6)",
    ]
    for folder in swept.iterdir():
        change_summary(folder, test_loss=3.0)
    assert compare_folders(swept).caveats == []
