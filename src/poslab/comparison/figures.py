"""Figures of a comparison, over groups of runs; a group has the same look in all of them."""

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
from poslab.evaluation.pictures import looks, wrapped
from poslab.runs.evaluation import Evaluation

Styles = Mapping[str, dict[str, Any]]  # by label, for matplotlib's plot


def styles_of(labels: Iterable[str]) -> Styles:
    """A look for each label, in alphabetical order."""
    return dict(zip(sorted(labels), looks(), strict=False))


def losses_figure(comparison: Comparison, styles: Styles) -> Figure:
    """Draws each run as a dot, each group's mean with its 95 % interval."""
    groups = comparison.groups[::-1]
    names = [wrapped(group.label) for group in groups]
    row_height = 0.28 + 0.17 * _lines(names)
    figure = Figure(figsize=(7, 1.2 + row_height * len(groups)), layout="constrained")
    axes = figure.subplots()
    for row, group in enumerate(groups):
        look, loss = styles[group.label], group.loss
        marker, color = look["marker"], look["color"]
        values = list(group.losses.values())
        axes.plot(values, [row + 0.18] * len(values), marker, color=color, alpha=0.5, markersize=5)
        low, high = (loss.mean if end is None else end for end in (loss.low, loss.high))
        error = [[loss.mean - low], [high - loss.mean]]
        axes.errorbar(loss.mean, row - 0.1, xerr=error, fmt=marker, color=color, capsize=4, markersize=8)
    axes.set(yticks=range(len(groups)), yticklabels=names)
    axes.set_ylim(-0.6, len(groups) - 0.4)
    axes.set_xlabel("best validation loss, nats per token (above: each seed; below: mean and 95 % interval)")
    axes.grid(axis="x", alpha=0.3)
    return figure


def curves_figure(curves: Mapping[str, Sequence[Curve]], styles: Styles) -> Figure:
    """Draws validation and training loss over steps: mean over seeds, with a band of one standard deviation."""
    figure = Figure(figsize=(9, 3.6 + _legend_height(curves, 3)), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("validation", "train"), strict=True):
        for label, of_seeds in curves.items():
            steps, losses = _aligned([getattr(curve, kind) for curve in of_seeds])
            if len(steps):
                _band(axes, steps, losses, label, styles, marker=len(steps) <= 30)
        title = "Validation loss" if kind == "validation" else "Training loss"
        axes.set(title=title, xlabel="step", ylabel="nats per token")
        axes.grid(alpha=0.3)
    _add_legend(figure, 3)
    return figure


def by_position_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Draws loss by the place in a window of the training length, in bins that grow wider."""
    figure = Figure(figsize=(7, 3.8 + _legend_height(evaluations, 2)), layout="constrained")
    axes = figure.subplots()
    for label, of_seeds in evaluations.items():
        results = [(e.context_length, result) for e in of_seeds for result in e.lengths]
        by_seed = [r.by_position for trained, r in results if r.length == trained and r.by_position]
        if not by_seed:
            continue
        length = min(map(len, by_seed))
        edges = np.unique(np.geomspace(1, length + 1, 14).astype(int)) - 1  # 0, 1, 2, 4, ... length
        binned = np.array([[np.mean(losses[a:b]) for a, b in pairwise(edges)] for losses in by_seed])
        middle = (edges[:-1] + edges[1:] - 1) / 2 + 1
        _band(axes, middle, binned, label, styles)
    axes.set(xlabel="tokens seen in the window (log scale)", ylabel="nats per token")
    _log_axis(axes)
    _add_legend(figure, 2)
    return figure


def by_length_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Draws loss by the length of the window, with the training length marked."""
    figure = Figure(figsize=(9, 3.8 + _legend_height([*evaluations, "trained to"], 3)), layout="constrained")
    columns = (("loss", "Windows that follow each other"), ("sliding_loss", "Sliding windows"))
    for axes, (kind, title) in zip(figure.subplots(1, 2, sharey=True), columns, strict=True):
        for label, of_seeds in evaluations.items():
            by_seed = [[(result.length, getattr(result, kind)) for result in e.lengths] for e in of_seeds]
            lengths, losses = _aligned([[(n, loss) for n, loss in points if loss is not None] for points in by_seed])
            if len(lengths):
                _band(axes, lengths, losses, label, styles)
        for trained in sorted({e.context_length for of_seeds in evaluations.values() for e in of_seeds}):
            axes.axvline(trained, color="#555555", linestyle=":", linewidth=1, label=f"trained to {trained:,}")
        axes.set(title=title, xlabel="length of the window (log scale)", ylabel="nats per token")
        _log_axis(axes)
    _add_legend(figure, 3)
    return figure


def svg(figure: Figure) -> str:
    """The figure as text; equal figures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "poslab", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it draws a box, as a browser would
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _band(axes: Axes, x: Any, values: Any, label: str, styles: Styles, marker: bool = True) -> None:
    """Draws the mean of values (seeds, x) and a band of one standard deviation; a gap where a value is not finite."""
    look = styles[label] | ({} if marker else {"marker": None})
    values = np.where(np.isfinite(values), values, np.nan)
    mean = values.mean(0)
    axes.plot(x, mean, label=wrapped(label), markersize=4, **look)
    if len(values) > 1:
        sd = values.std(0, ddof=1)
        axes.fill_between(x, mean - sd, mean + sd, color=look["color"], alpha=0.15, linewidth=0)


def _aligned(points: Sequence[Sequence[tuple[int, float]]]) -> tuple[Any, Any]:
    """(places that all seeds have, values (seeds, places)) of a sequence of (place, value) for each seed."""
    by_seed = [dict(of_seed) for of_seed in points]
    places = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
    return np.array(places), np.array([[values[place] for place in places] for values in by_seed])


def _legend_height(labels: Collection[str], columns: int) -> float:
    """Inches that a legend takes."""
    return 0.2 + 0.19 * math.ceil(len(labels) / columns) * _lines(map(wrapped, labels))


def _add_legend(figure: Figure, columns: int) -> None:
    """Adds one legend for all axes, below them, where it hides nothing."""
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        handles, labels = list(entries.values()), list(entries)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small")


def _log_axis(axes: Axes) -> None:
    """Makes x logarithmic, with ticks at 1, 2, 4, ... rather than at powers of 2, and a grid."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    exponents = range(math.ceil(math.log2(max(low, 1e-9))), math.floor(math.log2(high)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([2.0**n for n in exponents]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.grid(alpha=0.3)


def _lines(texts: Iterable[str]) -> int:
    """Lines of the longest text."""
    return max((text.count("\n") + 1 for text in texts), default=1)
