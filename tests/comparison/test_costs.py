"""What schemes cost beside what they reach, and what of a run's course weakens an answer."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from runs_to_compare import compare_folders, table_in, write_run, write_task_run

from poslab.comparison.costs import cost_figure, front
from poslab.comparison.results import Results
from seedstats.figures import styles_of
from seedstats.section import Section

SLOW, FAST = (1000.0, 1190.0, 1100.0), (1500.0, 1700.0, 1600.0)  # tokens/s of three seeds


@pytest.mark.parametrize(
    ("points", "best"),
    [
        ([(1, 3), (2, 2), (3, 1)], [0, 1, 2]),
        ([(3, 1), (1, 3), (2, 3), (2, 2), (4, 1)], [1, 3, 0]),
        ([(1, 1), (1, 1), (1, 2)], [0]),
        ([(0, 5)], [0]),
        ([], []),
    ],
)
def test_fronts(points: list[tuple[float, float]], best: list[int]) -> None:
    assert front(points) == best


def write_speeds(root: Path, **speeds: Sequence[float]) -> None:
    """Three seeds of each scheme with these speeds; t5 is better."""
    for pos, of_seeds in speeds.items():
        for seed, speed in enumerate(of_seeds, start=1):
            loss = 4 + 0.1 * seed + (0.001 * seed**2 - 0.1 if pos == "t5" else 0)
            write_run(root, pos, seed, loss, tokens_per_s=speed, params_scheme=128 * (pos == "t5"))


def section_of(root: Path) -> Section:
    return Results(table_in(root).table, Path()).section("a text", compare_folders(root))


def drawn(root: Path) -> tuple[dict[str, list[float]], list[list[list[float]]], list[list[list[list[float]]]]]:
    """Of the figure: each scheme's median speed and mean, the line of the front, and the horizontal lines."""
    one = compare_folders(root)
    speed = cost_figure(one, styles_of([group.label for group in one.groups])).panels[0].axes[0]
    points = {
        str(line.get_label()): line.get_xydata()[0].tolist() for line in speed.lines if len(line.get_xdata()) == 1
    }
    fronts = [line.get_xydata().tolist() for line in speed.lines if line.get_drawstyle() == "steps-pre"]
    across = [segment.tolist() for lines in speed.collections for segment in lines.get_segments()]
    return points, fronts, [line for line in across if line[0][1] == line[1][1]]


def test_speed_is_the_median_seed_with_the_range(tmp_path: Path) -> None:
    write_speeds(tmp_path, absolute=FAST, t5=SLOW)
    section = section_of(tmp_path)
    assert section.columns["tokens/s"] == {"absolute": "1,600", "t5": "1,100"}
    assert section.columns["parameters added"] == {"absolute": "0", "t5": "128"}
    assert section.caveats == []
    points, (line,), ranges = drawn(tmp_path)
    assert {label: x for label, (x, _) in points.items()} == {"absolute": 1600, "t5": 1100}
    assert sorted(line) == sorted(points.values())  # t5 is better, and absolute faster
    assert sorted([low[0], high[0]] for low, high in ranges) == [[1000, 1190], [1500, 1700]]


def test_where_speeds_overlap_there_is_no_front(tmp_path: Path) -> None:
    write_speeds(tmp_path, absolute=(1150.0, 1250.0, 1200.0), t5=SLOW)
    assert drawn(tmp_path)[1] == []


@pytest.mark.parametrize(("fastest", "uneven"), [(1190.0, False), (1210.0, True)])
def test_seeds_that_trained_at_unlike_speeds_are_a_caveat(fastest: float, uneven: bool, tmp_path: Path) -> None:
    write_speeds(tmp_path, absolute=FAST, t5=(1000.0, fastest, 1100.0))
    said = "Speeds can't be compared: seeds of t5 differ in theirs by more than 20 %"
    assert section_of(tmp_path).caveats == [said] * uneven


@pytest.mark.parametrize(
    ("fall", "t5", "said"),
    [
        (0.2, -0.1, ["The loss still fell by more than the difference in the last tenth of the steps: t5 (by 0.2)"]),
        (0.05, -0.1, []),
        (0.2, 0.0, []),  # no difference is claimed
    ],
)
def test_a_loss_that_still_fell_is_a_caveat_of_a_difference(
    fall: float, t5: float, said: list[str], tmp_path: Path
) -> None:
    for pos, losses in (("absolute", (4.0, 4.1, 4.2)), ("t5", (4.0 + t5, 4.101 + t5, 4.198 + t5))):
        for seed, loss in enumerate(losses, start=1):
            write_run(tmp_path, pos, seed, loss, late_fall=fall)
    assert section_of(tmp_path).caveats == said


def test_the_front_of_shares_has_the_highest(tmp_path: Path) -> None:
    """Higher is better, and a better scheme with more parameters is on the line as well as a worse one with none."""
    for pos, exact, parameters in (("absolute", 0.5, 0), ("t5", 0.9, 128), ("shaw", 0.4, 5000)):
        for seed in (1, 2):
            write_task_run(tmp_path, pos, seed, {10: 1.0, 20: exact}, params_scheme=parameters)
    panel = cost_figure(compare_folders(tmp_path), styles_of(["absolute", "t5", "shaw"]))
    (line,) = [line for line in panel.panels[1].axes[0].get_lines() if line.get_drawstyle() == "steps-post"]
    assert line.get_xydata().tolist() == [[0, 0.5], [128, 0.9]]


def test_a_single_scheme_has_no_figure_of_costs(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    assert cost_figure(compare_folders(tmp_path), styles_of(["absolute"])) is None
