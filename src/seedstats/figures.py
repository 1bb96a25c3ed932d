"""Figures of a comparison, over groups of runs; a group has the same look in all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedstats.compare import Comparison
from seedstats.groups import Group
from seedstats.page import blocks
from seedstats.page.looks import looks, wrapped
from seedstats.statistics.intervals import Interval

Styles = Mapping[str, dict[str, Any]]  # by label, for matplotlib's plot
_FEW_PARAMETERS = 100  # up to which their axis is linear, so that it has a zero
DOTTED: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1}


def styles_of(labels: Iterable[str], baseline: str | None = None) -> Styles:
    """Return a line style for each label, in alphabetical order; the baseline's label says so and its style stands
    out."""
    styles = {label: look | {"label": wrapped(label)} for label, look in zip(sorted(labels), looks(), strict=False)}
    if baseline is not None:
        marked = {"label": wrapped(f"{baseline} (baseline)"), "color": "black", "linestyle": "-", "linewidth": 2.5}
        styles[baseline] |= marked
    return styles


def panel_grid(
    count: int, columns: int, size: tuple[float, float], names: Sequence[str] = (), heights: Sequence[float] = ()
) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels in rows, and room beside them for a legend of these names.

    size: of a panel, inches. heights: of the rows, if they differ.
    """
    rows, lines = math.ceil(count / columns), [line for name in names for line in name.split("\n")]
    width = size[0] * columns + (0.7 + 0.075 * max(map(len, lines)) if lines else 0.0)
    height = max(sum(heights) or size[1] * rows, 0.19 * len(lines) + 0.4)
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, height_ratios=heights or None).flatten().tolist()
    for unused in panels[count:]:
        unused.remove()
    return figure, panels[:count]


def add_legend(figure: Figure, names: Sequence[str] = ()) -> None:
    """Add one legend beside all panels: lines in the order of `names`, then others in the order drawn."""
    handles = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = sorted(handles, key=lambda name: names.index(name) if name in names else len(names))
    if order:
        figure.legend([handles[name] for name in order], order, loc="outside right upper", fontsize="small")


def draw_untrained(axes: Axes, losses: Mapping[str, float], *, upright: bool = False) -> None:
    """Draw a named line at each loss within the axes, without changing their limits."""
    low, high = axes.get_xlim() if upright else axes.get_ylim()
    for name, loss in losses.items():
        if low <= loss <= high and upright:
            axes.axvline(loss, **DOTTED)
            axes.text(loss, 1, name, transform=axes.get_xaxis_transform(), size="small", ha="center", va="bottom")
        elif low <= loss <= high:
            axes.axhline(loss, **DOTTED)
            axes.text(1, loss, name, transform=axes.get_yaxis_transform(), size="small", ha="right", va="bottom")


# Each run, and what it costs

_BY_RUN = (
    "Left, each dot is a run; below them the mean over seeds and its 95 % interval. Right, the mean difference "
    "from the baseline over common seeds, with its simultaneous interval."
)
_OVER_TEXT = (
    " The broad, pale bar is the interval over seeds and text at once: where it reaches 0, other text may say else."
)


def scores_panel(comparison: Comparison, styles: Styles) -> blocks.Figure:
    """Draw each run as a dot, each group's mean with its 95 % interval, and its difference from the baseline.

    Losses of untrained models are drawn if within the axes, differences over seeds and text as pale bars.
    """
    groups, score, over_text = comparison.groups[::-1], comparison.score, comparison.over_text
    failed = {group.label: f"\n{len(group.diverged)} diverged" if group.diverged else "" for group in groups}
    names = [styles[group.label]["label"] + failed[group.label] for group in groups]
    several = len(groups) > 1
    height = 0.32 + 0.16 * max(name.count("\n") for name in names)  # inches of a row
    figure = Figure(figsize=(12 if several else 7, 1 + height * len(groups)), layout="constrained")
    left, *right = figure.subplots(1, 1 + several, sharey=True, squeeze=False)[0]
    left.set(yticks=range(len(groups)), yticklabels=names, xlabel=score.label, ylim=(-0.6, len(groups) - 0.4))
    for row, group in enumerate(groups):
        look = {name: styles[group.label][name] for name in ("marker", "color")}
        values = list(group.values.values())
        left.plot(values, [row + 0.2] * len(values), linestyle="", alpha=0.5, markersize=5, **look)
        _interval(left, row - 0.1, group.estimate.mean, group.estimate.interval, look)
        broad, difference = over_text.get(group.label), comparison.differences.get(group.label)
        if broad and broad.interval:
            right[0].plot(broad.interval, [row] * 2, c=look["color"], alpha=0.25, lw=7, solid_capstyle="butt")
        if difference and difference.mean is not None:
            _interval(right[0], row, difference.mean, difference.interval, look)
    draw_untrained(left, comparison.untrained, upright=True)
    if score.metric.is_proportion:  # at their own scale, seeds that are alike would look far apart
        left.set_xlim(-0.03, 1.03)
    for axes in right:
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel(", ".join(filter(None, [f"difference from {wrapped(comparison.baseline)}", score.unit])))
    for axes in figure.axes:
        axes.grid(axis="x", alpha=0.3)
    name, caption = "losses" if score.is_loss else "scores", _BY_RUN + (_OVER_TEXT if over_text else "")
    return blocks.Figure(name, score.title.capitalize(), caption, figure)


def _interval(axes: Axes, row: float, mean: float, interval: Interval | None, look: dict[str, Any]) -> None:
    """Draw a mean with its interval, if known."""
    ends = [[mean - interval.low], [interval.high - mean]] if interval else None
    axes.errorbar(mean, row, xerr=ends, linestyle="", capsize=3, markersize=7, **look)


def _training_minutes(group: Group) -> float | None:
    """Return the mean training time over runs, without validations, or None if unknown."""
    summaries = [run.summary for run in group.runs]
    known = [s.tokens / s.tokens_per_s / 60 for s in summaries if s.tokens_per_s > 0]
    return float(np.mean(known)) if len(known) == len(summaries) else None


def trade_off_figure(comparison: Comparison, styles: Styles) -> Figure | None:
    """Draw each group's mean figure over the training time and over the scheme's parameters, with Pareto fronts.

    Returns None unless there are two groups.
    """
    groups, score = comparison.groups, comparison.score
    if len(groups) < 2:
        return None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    times, parameters = figure.subplots(1, 2, sharey=True)
    times.xaxis.set_major_locator(MaxNLocator(5))
    times.set(xlabel="training, minutes (validations left out)", ylabel=score.label)
    parameters.set_xscale("symlog", linthresh=_FEW_PARAMETERS)
    parameters.xaxis.set_major_formatter("{x:,.0f}")
    parameters.set_xlabel("parameters of the scheme")
    costs = {times: map(_training_minutes, groups), parameters: (group.mean("params_scheme") for group in groups)}
    for axes, of_groups in costs.items():
        points: list[tuple[float, float]] = []
        for cost, group in zip(of_groups, groups, strict=True):
            if cost is not None:
                look = {name: styles[group.label][name] for name in ("marker", "color", "label")}
                points.append((cost, group.estimate.mean))
                axes.plot(*points[-1], linestyle="", **look)
                if group.estimate.interval:
                    axes.vlines(cost, *group.estimate.interval, color=look["color"], alpha=0.35)
        if best := front([(cost, score.metric.sign * mean) for cost, mean in points]):
            line = zip(*(points[n] for n in best), strict=True)
            axes.plot(*line, color="#555555", linewidth=1, drawstyle="steps-post", zorder=0)
        axes.grid(alpha=0.3)
    parameters.set_xlim(left=-_FEW_PARAMETERS / 4)
    add_legend(figure, [styles[group.label]["label"] for group in groups])
    return figure


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other point dominates, sorted by their first coordinate; lower is
    better."""
    ranked = pd.DataFrame(points, columns=["cost", "figure"], dtype=float).sort_values(["cost", "figure"])
    best_before = ranked["figure"].cummin().shift(fill_value=np.inf)
    return ranked.index[ranked["figure"] < best_before].tolist()
