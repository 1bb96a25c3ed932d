"""The figures of a report: what their lines show, and words of any kind and length."""

import warnings
from collections.abc import Iterable
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from poslab.comparison import figures
from poslab.comparison.curves import Curve
from poslab.evaluation.pictures import attention_figure
from poslab.runs.evaluation import Evaluation, LengthLoss


def test_figures_repeat() -> None:
    styles = figures.styles_of(["a"])
    curves = {"a": [Curve([(1, 2.0), (2, 1.0)], [(2, 1.5)])]}
    assert len({figures.svg(figures.curves_figure(curves, styles)) for _ in range(2)}) == 1


NASTY = ["\x0c", "a\x07b", "$x^{$", "--", "<&>", "\ud800", "\n", " ", "漢", "_", "�"]


def test_figures_take_any_word() -> None:
    maps = {word: torch.eye(len(NASTY)).expand(1, 1, -1, -1) for word in ("$x^{$", "a\x07", "漢")}
    styles = figures.styles_of(NASTY)
    drawn = [
        attention_figure(maps, NASTY),
        figures.curves_figure({word: [Curve([], [(1, 2.0), (2, 1.0)])] for word in NASTY}, styles),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in drawn:
            ElementTree.fromstring(figures.svg(figure))


def test_figures_take_long_names() -> None:
    names = [f"scheme_with a_setting={'0123456789' * 12} number={number}" for number in range(24)]
    styles = figures.styles_of(names)
    curve = Curve([(1, 3.0), (2, 2.0)], [(1, 2.0), (2, 1.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of axes that have no room
        figures.svg(figures.curves_figure({name: [curve] for name in names}, styles))
        figures.svg(attention_figure({name: torch.eye(2).expand(1, 1, 2, 2) for name in names[:4]}, ["a", "b"]))


def test_two_groups_never_look_alike() -> None:
    labels = [f"scheme {number}" for number in range(30)]
    styles = figures.styles_of(labels)
    assert len({tuple(sorted(styles[label].items())) for label in labels}) == 30
    assert figures.styles_of(labels[::-1])["scheme 7"] == styles["scheme 7"]


def lines_of(figure: Figure, axes: int = 0) -> dict[str, np.ndarray]:
    return {str(line.get_label()): line.get_xydata() for line in figure.axes[axes].lines}


def test_curves_are_means_over_seeds() -> None:
    seeds = [Curve([], [(2, 4.0), (4, 3.0), (6, 2.0)]), Curve([], [(2, 5.0), (4, 5.0)])]
    lines = lines_of(figures.curves_figure({"a": seeds, "b": []}, figures.styles_of(["a", "b"])))
    assert lines["a"].tolist() == [[2, 4.5], [4, 4.0]]  # the steps that both have
    assert set(lines) == {"a"}


def test_loss_by_length_needs_all_seeds() -> None:
    def measured(**losses: float) -> Evaluation:
        return Evaluation(32, 533, [LengthLoss(int(n[1:]), 1, loss, loss) for n, loss in losses.items()], [])

    evaluations = {"a": [measured(n16=4.0, n32=3.0), measured(n16=5.0)]}
    lines = lines_of(figures.by_length_figure(evaluations, figures.styles_of(["a"])), axes=1)
    assert lines["a"].tolist() == [[16, 4.5]]
    assert lines["trained to 32"][:, 0].tolist() == [32, 32]


def test_loss_by_position_counts_every_place_once() -> None:
    losses = np.random.default_rng(3).normal(4, 1, 100)
    evaluation = Evaluation(100, 533, [LengthLoss(100, 50, 4.0, 4.0, losses.tolist(), 9)], [])
    line = lines_of(figures.by_position_figure({"a": [evaluation]}, figures.styles_of(["a"])))["a"]
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
