"""The pictures of a report; a group looks the same in all of them."""

import io
import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from poslab.comparison.curves import Curve
from poslab.comparison.groups import Comparison
from poslab.evaluation.losses import Evaluation
from poslab.evaluation.pictures import looks, wrapped


class Styles:
    """A look for every group, the same in all pictures, by the alphabet."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._of = dict(zip(sorted(labels), looks(), strict=False))

    def __getitem__(self, label: str) -> dict[str, Any]:
        return self._of[label]


def losses_figure(comparison: Comparison, styles: Styles) -> Figure:
    """Each run as a dot, each group's mean with its 95 % interval."""
    groups = comparison.groups[::-1]
    names = [wrapped(group.label) for group in groups]
    row_height = 0.28 + 0.17 * _lines(names)
    figure = Figure(figsize=(7, 1.2 + row_height * len(groups)), layout="constrained")
    axes = figure.subplots()
    for row, group in enumerate(groups):
        look, loss = styles[group.label], group.loss
        values = list(group.losses.values())
        axes.plot(values, [row + 0.18] * len(values), look["marker"], color=look["color"], alpha=0.5, markersize=5)
        error = (
            [[0.0], [0.0]]
            if loss.low is None or loss.high is None
            else [[loss.mean - loss.low], [loss.high - loss.mean]]
        )
        axes.errorbar(
            loss.mean, row - 0.1, xerr=error, fmt=look["marker"], color=look["color"], capsize=4, markersize=8
        )
    axes.set(yticks=range(len(groups)), yticklabels=names)
    axes.set_ylim(-0.6, len(groups) - 0.4)
    axes.set_xlabel("best validation loss, nats per token (above: each seed; below: mean and 95 % interval)")
    axes.grid(axis="x", alpha=0.3)
    return figure


def curves_figure(curves: Mapping[str, Sequence[Curve]], styles: Styles) -> Figure:
    """Validation loss over steps, mean over seeds with a band of one standard deviation; training loss beside it."""
    figure = Figure(figsize=(9, 3.6 + _legend_height(curves, 3)), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("validation", "train"), strict=True):
        for label, of_seeds in curves.items():
            steps, losses = _aligned([getattr(curve, kind) for curve in of_seeds])
            if len(steps):
                _band(axes, steps, losses, label, styles, marker=len(steps) <= 30)
        axes.set(
            title=f"{'Validation' if kind == 'validation' else 'Training'} loss", xlabel="step", ylabel="nats per token"
        )
        axes.grid(alpha=0.3)
    _add_legend(figure, 3)
    return figure


def by_position_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Loss by the place in a window of the training length, in places that grow wider."""
    figure = Figure(figsize=(7, 3.8 + _legend_height(evaluations, 2)), layout="constrained")
    axes = figure.subplots()
    for label, of_seeds in evaluations.items():
        found = [r.by_position for e in of_seeds for r in e.lengths if r.length == e.context_length and r.by_position]
        if not found:
            continue
        length = min(map(len, found))
        edges = np.unique(np.geomspace(1, length + 1, 14).astype(int)) - 1  # 0, 1, 2, 4, ... length
        binned = np.array([[np.mean(p[a:b]) for a, b in pairwise(edges)] for p in found])
        middle = (edges[:-1] + edges[1:] - 1) / 2 + 1
        _band(axes, middle, binned, label, styles)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="tokens seen in the window (log scale)", ylabel="nats per token")
    _plain_ticks(axes)
    axes.grid(alpha=0.3)
    _add_legend(figure, 2)
    return figure


def by_length_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Loss by the length of the window, with the training length marked."""
    figure = Figure(figsize=(9, 3.8 + _legend_height([*evaluations, "trained to"], 3)), layout="constrained")
    columns = (("loss", "Windows that follow each other"), ("sliding_loss", "Sliding windows"))
    all_axes = figure.subplots(1, 2, sharey=True)
    for axes, (kind, title) in zip(all_axes, columns, strict=True):
        for label, of_seeds in evaluations.items():
            by_length: dict[int, list[float]] = {}
            for evaluation in of_seeds:
                for result in evaluation.lengths:
                    value = getattr(result, kind)
                    if value is not None:
                        by_length.setdefault(result.length, []).append(value)
            lengths = sorted(length for length, values in by_length.items() if len(values) == len(of_seeds))
            if lengths:
                _band(axes, np.array(lengths), np.array([by_length[n] for n in lengths]).T, label, styles)
        for trained in sorted({e.context_length for of_seeds in evaluations.values() for e in of_seeds}):
            axes.axvline(trained, color="#555555", linestyle=":", linewidth=1, label=f"trained to {trained:,}")
        axes.set_xscale("log", base=2)
        axes.set(title=title, xlabel="length of the window (log scale)", ylabel="nats per token")
        _plain_ticks(axes)
        axes.grid(alpha=0.3)
    _add_legend(figure, 3)
    return figure


def svg(figure: Figure) -> str:
    """As text; equal figures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "poslab", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it draws a box, as a browser would
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _band(axes: Axes, x: Any, values: Any, label: str, styles: Styles, marker: bool = True) -> None:
    """values (seeds, x): the mean, and between mean - sd and mean + sd a band; a gap where a value is not finite."""
    look = styles[label] | ({} if marker else {"marker": None})
    values = np.where(np.isfinite(values), values, np.nan)
    mean = values.mean(0)
    axes.plot(x, mean, label=wrapped(label), markersize=4, **look)
    if len(values) > 1:
        sd = values.std(0, ddof=1)
        axes.fill_between(x, mean - sd, mean + sd, color=look["color"], alpha=0.15, linewidth=0)


def _aligned(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[Any, Any]:
    """(steps that all curves have, values (curves, steps))."""
    by_step = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, by_step))) if by_step else []
    return np.array(steps), np.array([[losses[step] for step in steps] for losses in by_step])


def _legend_height(labels: Collection[str], columns: int) -> float:
    """In inches."""
    return 0.2 + 0.19 * math.ceil(len(labels) / columns) * _lines(map(wrapped, labels))


def _add_legend(figure: Figure, columns: int) -> None:
    """One for all axes, below them, where it hides nothing."""
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        handles, labels = list(entries.values()), list(entries)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small")


def _plain_ticks(axes: Axes) -> None:
    """1, 2, 4, ... rather than powers of 2."""
    low, high = axes.get_xlim()
    exponents = range(math.ceil(math.log2(max(low, 1e-9))), math.floor(math.log2(high)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([2.0**n for n in exponents]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())


def _lines(texts: Iterable[str]) -> int:
    """Of the longest."""
    return max((text.count("\n") + 1 for text in texts), default=1)
