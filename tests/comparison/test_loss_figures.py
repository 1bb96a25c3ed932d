"""Figures of losses: what their lines show, and words of any kind and length."""

import math
import warnings
from collections.abc import Iterable
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats

from poslab.comparison import loss_figures
from poslab.comparison.curves import Curve
from poslab.evaluation.pictures import attention_figure
from poslab.runs.evaluation import Evaluation, LengthLoss
from seedstats.figures import styles_of
from seedstats.page.svg import svg


def test_figures_repeat() -> None:
    styles = styles_of(["a"])
    curves = {"a": [Curve([(1, 2.0), (2, 1.0)], [(2, 1.5)])]}
    assert len({svg(loss_figures.curves_figure(curves, styles, "a")) for _ in range(2)}) == 1


NASTY = ["$x^{$", "a\x07b", "漢", "\x0c", "--", "<&>", "\ud800", "\n", " ", "_", "�"]
LONG = [f"scheme_with a_setting={'0123456789' * 12} number={number}" for number in range(12)]


@pytest.mark.parametrize("names", [NASTY, LONG], ids=["any words", "long names"])
def test_figures_take_any_name(names: list[str]) -> None:
    curve = Curve([(1, 3.0), (2, 2.0)], [(1, 2.0), (2, 1.0)])
    maps = {name: torch.eye(len(NASTY)).expand(1, 1, -1, -1) for name in names[:4]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of axes that have no room, too
        curves = loss_figures.curves_figure({name: [curve] for name in names}, styles_of(names), names[0])
        for figure in (curves, attention_figure(maps, NASTY)):
            ElementTree.fromstring(svg(figure))


def lines_of(figure: Figure, axes: int = 0) -> dict[str, np.ndarray]:
    return {str(line.get_label()): line.get_xydata() for line in figure.axes[axes].lines}


def test_curves_are_means_over_seeds() -> None:
    seeds = [Curve([], [(2, 4.0), (4, 3.0), (6, 2.0)]), Curve([], [(2, 5.0), (4, 5.0)])]
    lines = lines_of(loss_figures.curves_figure({"a": seeds, "b": []}, styles_of(["a", "b"]), "b"))
    assert lines["a"].tolist() == [[2, 4.5], [4, 4.0]]  # the steps that both have
    assert set(lines) == {"a"}


def test_the_difference_from_the_baseline_stands_beside_the_curves() -> None:
    curves = {
        "a": [Curve([], [(2, 4.0), (4, 3.0)]), Curve([], [(2, 5.0), (4, 4.0)])],
        "b": [Curve([], [(2, 4.25), (4, math.inf), (6, 1.0)])],
    }
    figure = loss_figures.curves_figure(curves, styles_of(curves, "a"), "a")
    lines = lines_of(figure, axes=2)
    assert lines["a (baseline)"].tolist() == [[2, 0], [4, 0]]
    assert lines["b"][0].tolist() == [2, -0.25]
    assert math.isnan(lines["b"][1, 1])
    assert len(lines["b"]) == 2
    assert len(loss_figures.curves_figure({"a": curves["a"]}, styles_of(["a"]), "a").axes) == 2  # from itself


@pytest.mark.parametrize("groups", [3, 20])
def test_lines_have_their_room_and_their_names_beside_them(groups: int) -> None:
    labels = [f"scheme_{number}" for number in range(groups)]
    curves = {label: [Curve([(1, 3.0), (2, n)], [(1, 2.0), (2, n)])] * 2 for n, label in enumerate(labels)}
    figure = loss_figures.curves_figure(curves, styles_of(labels, labels[0]), labels[0])
    svg(figure)
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert [text.get_text().removesuffix(" (baseline)") for text in legend.get_texts()] == labels
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    for axes in figure.axes:
        assert axes.get_window_extent().width > 200
        assert axes.get_window_extent().x1 < box.x0
        assert bool(axes.collections) == (groups == 3 and axes is not figure.axes[-1])  # bands of few groups only


def measured(**losses: float) -> Evaluation:
    """All losses of windows of length 16, n16, and so on."""
    lengths = [LengthLoss(int(n[1:]), 1, loss, loss, last_loss=loss) for n, loss in losses.items()]
    return Evaluation(32, 533, lengths, [], "")


def test_last_losses_with_their_intervals() -> None:
    evaluations = {"a": [measured(n32=4.0, n64=3.0), measured(n32=5.0, n64=4.5)], "b": [measured(n32=4.0)]}
    figure = loss_figures.last_figure(evaluations, styles_of(["a", "b"]))
    losses, gains = (lines_of(figure, axes=n) for n in range(2))
    assert losses["a"].tolist() == [[32, 4.5], [64, 3.75]]
    assert losses["b"].tolist() == [[32, 4.0]]
    assert gains["a"].tolist() == [[64, 0.75]]
    assert "b" not in gains
    intervals = [axes.collections for axes in figure.axes]
    assert [len(of_axes) for of_axes in intervals] == [2, 1]  # of one seed there is none
    (low, high) = intervals[1][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 1, 0.75, stats.sem([1.0, 0.5])))


def test_loss_by_length_needs_all_seeds() -> None:
    evaluations = {"a": [measured(n16=4.0, n32=3.0), measured(n16=5.0)]}
    lines = lines_of(loss_figures.by_length_figure(evaluations, styles_of(["a"])), axes=1)
    assert lines["a"].tolist() == [[16, 4.5]]
    assert lines["trained to 32"][:, 0].tolist() == [32, 32]


def test_loss_by_position_counts_every_place_once() -> None:
    losses = np.random.default_rng(3).normal(4, 1, 100)
    evaluation = Evaluation(100, 533, [LengthLoss(100, 50, 4.0, 4.0, losses.tolist(), 9)], [], "")
    line = lines_of(loss_figures.by_position_figure({"a": [evaluation]}, styles_of(["a"]), "a"))["a"]
    assert line[0].tolist() == [1, pytest.approx(losses[0])]
    # The places in each bin, from its middle: as many as the bin is wide.
    ends = np.cumsum([2 * (middle - start) for middle, start in bins_of(line[:, 0])])
    assert ends[-1] == 100
    assert line[-1, 1] == pytest.approx(losses[int(ends[-2]) :].mean())


def bins_of(middles: np.ndarray) -> Iterable[tuple[float, float]]:
    """(middle, start) of neighbouring bins of places from 1 on, both in steps from 0.5."""
    start = 0.5
    for middle in middles:
        yield middle, start
        start = 2 * middle - start
