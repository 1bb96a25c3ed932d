"""Figures of losses: what their lines show, and words of any kind and length."""

import itertools
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
from seedstats.figures import MOST_NAMED, styles_of
from seedstats.page import blocks
from seedstats.page.svg import svg


def test_figures_repeat() -> None:
    styles = styles_of(["a"])
    curves = {"a": {1: Curve([(1, 2.0), (2, 1.0)], [(1, 1.8), (2, 1.5)])}}
    drawn = [loss_figures.curves_figure(curves, styles, "a").svgs for _ in range(2)]
    assert drawn[0] == drawn[1]


NASTY = ["$x^{$", "a\x07b", "漢", "\x0c", "--", "<&>", "\ud800", "\n", " ", "_", "�"]
LONG = [f"scheme_with a_setting={'0123456789' * 12} number={number}" for number in range(12)]


@pytest.mark.parametrize("names", [NASTY, LONG, LONG[:5]], ids=["any words", "long names", "a few long names"])
def test_figures_take_any_name(names: list[str]) -> None:
    curve = Curve([(1, 3.0), (2, 2.0)], [(1, 2.0), (2, 1.0)])
    maps = {name: torch.eye(len(NASTY)).expand(1, 1, -1, -1) for name in names[:4]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of axes that have no room, too
        curves = loss_figures.curves_figure({name: {1: curve} for name in names}, styles_of(names), names[0])
        for text in (*curves.svgs, svg(attention_figure(maps, NASTY))):
            ElementTree.fromstring(text)


def lines_of(figure: blocks.Figure, panel: int = 0) -> dict[str, np.ndarray]:
    return {str(line.get_label()): line.get_xydata() for line in figure.panels[panel].axes[0].lines}


def by_seed(*curves: Curve) -> dict[int, Curve]:
    return dict(enumerate(curves, 1))


def test_curves_are_means_over_seeds() -> None:
    seeds = by_seed(Curve([], [(2, 4.0), (4, 3.0), (6, 2.0)]), Curve([], [(2, 5.0), (4, 5.0)]))
    lines = lines_of(loss_figures.curves_figure({"a": seeds, "b": {}}, styles_of(["a", "b"]), "b"))
    assert lines["a"].tolist() == [[2, 4.5], [4, 4.0]]  # the steps that both have
    assert set(lines) == {"a"}


def test_each_scheme_has_its_difference_from_the_baseline_paired_by_seed() -> None:
    curves = {
        "a": {1: Curve([], [(2, 4.0), (4, 3.0)]), 2: Curve([], [(2, 5.0), (4, 4.0)])},
        "b": {2: Curve([], [(2, 4.5), (4, math.inf)]), 1: Curve([], [(2, 3.7), (4, 2.0)])},
        "c": {1: Curve([], [(2, 5.0), (4, 5.0)])},
    }
    figure = loss_figures.curves_figure(curves, styles_of(curves, "a"), "a")
    assert len(figure.panels) == 4
    assert lines_of(figure, panel=2)["b"].tolist() == [[2, pytest.approx(-0.4)]]
    assert lines_of(figure, panel=3)["c"].tolist() == [[2, 1.0], [4, 2.0]]
    (band,) = figure.panels[2].axes[0].collections
    low, high = stats.t.interval(0.95, 1, -0.4, stats.sem([-0.3, -0.5]))
    assert {round(y, 6) for y in band.get_paths()[0].vertices[:, 1]} == {round(low, 6), round(high, 6)}
    limits = {panel.axes[0].get_ylim() for panel in figure.panels[2:]}
    assert len(limits) == 1  # on one scale
    alone = loss_figures.curves_figure({"a": curves["a"]}, styles_of(["a"]), "a")
    assert len(alone.panels) == 2  # as nothing differs from itself


def test_the_widest_interval_does_not_flatten_the_differences() -> None:
    """That of two seeds, which a t distribution makes a dozen times as wide."""
    base = {1: Curve([], [(1, 4.0), (2, 4.0)]), 2: Curve([], [(1, 4.0), (2, 4.0)])}
    other = {1: Curve([], [(1, 3.9), (2, 4.0)]), 2: Curve([], [(1, 4.3), (2, 4.0)])}
    figure = loss_figures.curves_figure({"a": base, "b": other}, styles_of(["a", "b"], "a"), "a")
    low, high = figure.panels[2].axes[0].get_ylim()
    assert high - low < 10 * 0.1


@pytest.mark.parametrize("groups", [3, MOST_NAMED, 20])
def test_lines_have_their_room_and_their_names_beside_them(groups: int) -> None:
    labels = [f"scheme_{number}" for number in range(groups)]
    curves = {label: by_seed(*[Curve([(1, 3.0), (2, n)], [(1, 2.0), (2, n)])] * 2) for n, label in enumerate(labels)}
    figure = loss_figures.curves_figure(curves, styles_of(labels, labels[0]), labels[0])
    assert len(figure.svgs) == len(figure.panels)  # which lays them out
    validation = figure.panels[0].axes[0]
    assert validation.get_window_extent().width > 150
    assert not validation.collections  # no bands, which would hide each other
    if groups > MOST_NAMED:
        (legend,) = (axes.get_legend() for panel in figure.panels for axes in panel.axes if axes.get_legend())
        named = [text.get_text() for text in legend.get_texts()]
    else:
        named = [text.get_text() for text in validation.texts]
        boxes = sorted(text.get_window_extent().y0 for text in validation.texts)
        assert min(np.diff(boxes)) > 8  # one above the other
    assert {name.removesuffix(" (baseline)") for name in named} == set(labels)


def measured(**losses: float) -> Evaluation:
    """All losses of windows of length 16, n16, and so on."""
    lengths = [LengthLoss(int(n[1:]), 1, loss, loss, last_loss=loss) for n, loss in losses.items()]
    return Evaluation(32, 533, lengths, [], "")


def test_last_losses_with_their_intervals() -> None:
    evaluations = {"a": {1: measured(n32=4.0, n64=3.0), 2: measured(n32=5.0, n64=4.5)}, "b": {1: measured(n32=4.0)}}
    figure = loss_figures.last_figure(evaluations, styles_of(["a", "b"]))
    losses, gains = (lines_of(figure, panel=n) for n in range(2))
    assert losses["a"].tolist() == [[32, 4.5], [64, 3.75]]
    assert losses["b"].tolist() == [[32, 4.0]]
    assert gains["a"].tolist() == [[64, 0.75]]
    assert "b" not in gains
    intervals = [panel.axes[0].collections for panel in figure.panels]
    assert [len(of_axes) for of_axes in intervals] == [2, 1]  # of one seed there is none
    (low, high) = intervals[1][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 1, 0.75, stats.sem([1.0, 0.5])))


def test_loss_by_length_needs_all_seeds() -> None:
    evaluations = {"a": {1: measured(n16=4.0, n32=3.0), 2: measured(n16=5.0)}}
    lines = lines_of(loss_figures.by_length_figure(evaluations, styles_of(["a"]), "a"), panel=1)
    assert lines["a"].tolist() == [[16, 4.5]]
    assert lines["trained to 32"][:, 0].tolist() == [32, 32]


def test_loss_by_position_counts_every_place_once() -> None:
    losses = np.random.default_rng(3).normal(4, 1, 100)
    evaluation = Evaluation(100, 533, [LengthLoss(100, 50, 4.0, 4.0, losses.tolist(), 9)], [], "")
    line = lines_of(loss_figures.by_position_figure({"a": {1: evaluation}}, styles_of(["a"]), "a"))["a"]
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


def ticks_touch(figure: Figure) -> bool:
    labels = [label for axes in figure.axes for label in axes.get_xticklabels() if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in labels))
    return any(left[1] > right[0] for left, right in itertools.pairwise(boxes))


def test_labels_of_axes_do_not_touch() -> None:
    curves = {
        name: by_seed(*[Curve([(1, 3.3), (31000, 3.3250)], [(1000, 3.3275), (31000, 3.3251)])] * 2) for name in "abc"
    }
    figure = loss_figures.curves_figure(curves, styles_of(curves, "a"), "a")
    evaluations = {"a": {1: measured(**{f"n{2**n}": 3.3 for n in range(4, 16)})}}
    figures = [figure, loss_figures.by_length_figure(evaluations, styles_of(["a"]), "a")]
    for panel in (panel for of in figures for panel in of.panels):
        svg(panel)
        assert not ticks_touch(panel)


@pytest.mark.parametrize("validations", [1, 2])
def test_one_validation_is_no_curve(validations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a dot."""
    monkeypatch.setattr(loss_figures, "cost_figure", lambda *_: None)
    group = type("Group", (), {"label": "a"})
    comparison = type("Comparison", (), {"baseline": "a", "groups": [group], "references": {}})
    curves = {"a": {1: Curve([(1, 2.0), (2, 1.0)], [(1, 1.8), (2, 1.5)][:validations])}}
    drawn, notes = loss_figures.loss_panels(comparison, {}, curves, "nats")
    assert [figure.name for figure in drawn] == ["curves"] * (validations > 1)
    assert len(notes) == (validations == 1)
