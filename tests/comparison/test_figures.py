"""Looks of groups in figures, and Pareto fronts."""

from pathlib import Path

import pytest
from poslab.comparison.figures import front, styles_of, trade_off_figure
from runs_to_compare import compare_folders, write_run, write_task_run


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
    figure = trade_off_figure(compare_folders(tmp_path), styles_of(["absolute", "t5", "shaw"]))
    (line,) = [line for line in figure.axes[1].get_lines() if line.get_drawstyle() == "steps-post"]
    assert line.get_xydata().tolist() == [[0, 0.5], [128, 0.9]]


def test_costs_that_are_not_known_are_not_drawn(tmp_path: Path) -> None:
    for number, pos in enumerate(("absolute", "t5")):
        write_run(tmp_path, pos, 1, 4.0 + number, tokens_per_s=0.0)
        if number == 0:
            assert trade_off_figure(compare_folders(tmp_path), styles_of([pos])) is None  # of one group
    times, parameters = trade_off_figure(compare_folders(tmp_path), styles_of(["absolute", "t5"])).axes
    assert len(times.get_lines()) == 0
    assert len(parameters.get_lines()) == 3  # two points and the front
