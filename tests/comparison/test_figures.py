"""Looks of groups in figures, and Pareto fronts."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from runs_to_compare import compare_folders, write_run, write_task_run

from poslab.comparison.costs import cost_figure, front
from seedstats.figures import styles_of


def drawn(folder: Path) -> Figure | None:
    one = compare_folders(folder)
    found = cost_figure(one, styles_of([group.label for group in one.groups]))
    return found and found.figure


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


def test_the_front_of_shares_has_the_highest(tmp_path: Path) -> None:
    """Higher is better, and a better scheme with more parameters is on the line as well as a worse one with none."""
    for pos, exact, parameters in (("absolute", 0.5, 0), ("t5", 0.9, 128), ("shaw", 0.4, 5000)):
        for seed in (1, 2):
            write_task_run(tmp_path, pos, seed, {10: 1.0, 20: exact}, params_scheme=parameters)
    figure = drawn(tmp_path)
    (line,) = [line for line in figure.axes[1].get_lines() if line.get_drawstyle() == "steps-post"]
    assert line.get_xydata().tolist() == [[0, 0.5], [128, 0.9]]


def test_costs_that_are_not_known_are_not_drawn(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1, 4.0)
    assert drawn(tmp_path) is None  # of one group


@pytest.mark.parametrize(("fastest", "fronts"), [(1600.0, ["steps-pre", "steps-post"]), (2100.0, ["steps-post"])])
def test_speeds_that_overlap_have_no_front(fastest: float, fronts: list[str], tmp_path: Path) -> None:
    for seed, speed in ((1, 1500.0), (2, fastest)):
        write_run(tmp_path, "absolute", seed, 4.0, tokens_per_s=speed)
        write_run(tmp_path, "t5", seed, 3.0, tokens_per_s=speed + 500)
    lines = [line.get_drawstyle() for axes in drawn(tmp_path).axes for line in axes.get_lines()]
    assert [style for style in lines if style != "default"] == fronts
