"""What a comparison says of runs whose truth is known."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from runs_to_compare import (
    change_summary,
    compare_folders,
    page_in,
    report_of,
    sentences,
    write_evaluation,
    write_run,
    write_sweep,
)

from poslab.errors import UserError
from seedstats.answers import caveats, findings


def test_baseline(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=3, shaw=0.0, t5=-1.0)
    assert compare_folders(tmp_path).baseline == "shaw"
    assert sentences(compare_folders(tmp_path, baseline="t5"))[0].startswith("shaw is worse than t5: 0.9")
    write_run(tmp_path, "absolute", 1)
    assert compare_folders(tmp_path).baseline == "absolute"
    with pytest.raises(UserError, match=r"baseline=t6: unknown; did you mean t5\?"):
        compare_folders(tmp_path, baseline="t6")


def test_groups_are_in_order_of_their_loss(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=4, absolute=0.0, shaw=-0.5, t5=0.5)
    groups = compare_folders(tmp_path).groups
    assert [group.label for group in groups] == ["shaw", "absolute", "t5"]
    for group in groups:
        assert group.values == losses[group.label]


def of_checkpoints(root: Path, **settings: bool) -> list[str]:
    """What is said of single runs by their losses on stretches of the same text."""
    return [said for said in findings(compare_folders(root, **settings)) if "these two runs of" in said]


def one_run_each(
    root: Path, difference: float, spread: float, loss: float = 4.0, ends: Sequence[int] = ()
) -> list[str]:
    """What is said of two runs whose losses on the same 640 tokens, of which 533 were validated on, differ so."""
    generator = np.random.default_rng(2)
    base = generator.normal(4, 1, 640)
    write_evaluation(write_run(root, "absolute", 1, 4.0), base, ends=ends)
    write_evaluation(write_run(root, "t5", 1, loss), base + generator.normal(difference, spread, 640), ends=ends)
    return of_checkpoints(root)


def test_one_run_each_on_documents(tmp_path: Path) -> None:
    ends = list(range(24, 640, 24))
    (said,) = one_run_each(tmp_path, -0.1, 0.2, ends=ends)
    assert said.startswith("On 23 passages of the text, these two runs of t5 and absolute differ: t5 is better by 0.")
    assert one_run_each(tmp_path / "one_is_long", -0.1, 0.2, ends=ends[15:]) == []


def evaluate_both(root: Path, losses: list[float], other: list[float]) -> None:
    write_evaluation(root / "absolute-seed1", losses)
    write_evaluation(root / "t5-seed1", other)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: change_summary(root / "t5-seed1", data_sha256="0" * 64),
        lambda root: change_summary(root / "t5-seed1", test_tokens=640, test_loss=4.0),
        lambda root: evaluate_both(root, [4.0] * 640, [math.nan] * 640),
        lambda root: evaluate_both(root, [4.0] * 640, [4.0] * 500),
        lambda root: evaluate_both(root, [], []),
        lambda root: write_evaluation(write_run(root, "t5", 3), np.ones(640)),  # several seeds need no tokens
    ],
    ids=["other text", "other part", "not finite", "other number", "none", "seeds"],
)
def test_checkpoints_are_compared_only_of_one_run_each_on_the_same_text(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    assert one_run_each(tmp_path, -0.1, 0.2)
    change(tmp_path)
    assert of_checkpoints(tmp_path, allow_differences=True) == []


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
    caveat = "several devices: cpu (x86_64), cuda:0; times can't be compared, and losses differ by rounding"
    screen = capsys.readouterr().out.splitlines()
    answer = next(number for number, line in enumerate(screen) if line.startswith("- t5 is better"))
    assert f"  caveat: {caveat}" in screen[answer:]
    assert page_in(folder).lists[1] == [caveat]
    for name in ("report.md", "report.html"):
        before_explanation = (folder / name).read_text().split("how to read this")[0]
        assert "several devices: cpu (x86_64), cuda:0" in before_explanation
