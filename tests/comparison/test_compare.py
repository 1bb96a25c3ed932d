"""What a comparison says of runs whose truth is known."""

from pathlib import Path

import pytest
from refusals import refused
from runs_to_compare import (
    change_summary,
    compare_folders,
    page_in,
    report_of,
    sentences,
    write_run,
    write_sweep,
)

from seedstats.answers import caveats


def test_baseline(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=3, shaw=0.0, t5=-1.0)
    assert compare_folders(tmp_path).baseline == "shaw"
    assert sentences(compare_folders(tmp_path, baseline="t5"))[0].startswith("shaw is worse than t5: 0.9")
    write_run(tmp_path, "absolute", 1)
    assert compare_folders(tmp_path).baseline == "absolute"
    with refused("baseline", "t6", "t5"):
        compare_folders(tmp_path, baseline="t6")


def test_groups_are_in_order_of_their_loss(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=4, absolute=0.0, shaw=-0.5, t5=0.5)
    groups = compare_folders(tmp_path).groups
    assert [group.label for group in groups] == ["shaw", "absolute", "t5"]
    for group in groups:
        assert group.values == losses[group.label]


def test_runs_that_are_judged_by_other_tokens_share_no_references(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1, 7.0, untrained_losses={"bigram": 5.4})
    write_run(tmp_path, "t5", 1, 7.1, untrained_losses={"bigram": 5.5})
    comparison = compare_folders(tmp_path)
    assert (comparison.references, caveats(comparison)) == ({}, [])


@pytest.mark.usefixtures("no_figures")
def test_caveats_stand_with_the_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path, absolute=0.0, t5=-0.5)
    folder = report_of(tmp_path)
    assert "caveat: " not in capsys.readouterr().out
    change_summary(tmp_path / "t5-seed2", device="cuda:0")
    report_of(tmp_path)
    caveat = "several devices: cpu (x86_64), cuda:0; times can't be compared, and losses differ by rounding."
    screen = capsys.readouterr().out.splitlines()
    answer = next(number for number, line in enumerate(screen) if line.startswith("- t5 is better"))
    assert f"  caveat: {caveat}" in screen[answer:]
    assert page_in(folder).lists[1] == [caveat]
    for name in ("report.md", "report.html"):
        before_explanation = (folder / name).read_text().split("how to read this")[0]
        assert "several devices: cpu (x86_64), cuda:0" in before_explanation
