"""Figures of a comparison, over groups of runs; a group has the same look in all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from seedstats.comparison import Comparison
from seedstats.groups import Group, by_name, is_number, varied_settings
from seedstats.page import blocks
from seedstats.page.looks import looks_of, printable, wrapped
from seedstats.statistics.intervals import Interval

Styles = Mapping[str, dict[str, Any]]  # by label, for matplotlib's plot
MOST_DRAWN = 40  # groups whose rows can still be read
DOTTED: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1}


def styles_of(labels: Iterable[str], baseline: str | None = None) -> Styles:
    """Return a line style for each label, in alphabetical order; the baseline's label says so and its line is
    thicker."""
    styles = {label: look | {"label": wrapped(label)} for label, look in looks_of(labels).items()}
    if baseline is not None:
        styles[baseline] |= {"label": wrapped(f"{baseline} (baseline)"), "linewidth": 2.5}
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


def draw_references(axes: Axes, values: Mapping[str, float], *, upright: bool = False) -> None:
    """Draw a named line at each reference within the axes, without changing their limits."""
    low, high = axes.get_xlim() if upright else axes.get_ylim()
    for name, value in values.items():
        if low <= value <= high and upright:
            axes.axvline(value, **DOTTED)
            axes.text(value, 1, name, transform=axes.get_xaxis_transform(), size="small", ha="center", va="bottom")
        elif low <= value <= high:
            axes.axhline(value, **DOTTED)
            axes.text(1, value, name, transform=axes.get_yaxis_transform(), size="small", ha="right", va="bottom")


_BY_RUN = (
    "Left: the mean difference from {baseline} over common seeds, with the interval to quote. Right: each small mark "
    "is a run, and the large mark below is the mean with its 95 % interval."
)
_ALONE = "Each small mark is a run, and the large mark below is the mean with its 95 % interval."


def scores_figure(one: Comparison) -> blocks.Figure:
    """Draw how each group differs from the baseline, and each run as a dot with the group's mean."""
    drawn = [group for place, group in enumerate(one.groups) if place < MOST_DRAWN or group.label == one.baseline]
    groups, metric = drawn[::-1], one.metric
    styles = styles_of((group.label for group in groups), one.baseline)
    failed = {group.label: f"\n{len(group.diverged)} diverged" if group.diverged else "" for group in groups}
    names = [styles[group.label]["label"] + failed[group.label] for group in groups]
    several = len(groups) > 1
    height = 0.32 + 0.16 * max(name.count("\n") for name in names)  # inches of a row
    figure = Figure(figsize=(11 if several else 7, 1 + height * len(groups)), layout="constrained")
    *compared, by_run = figure.subplots(1, 1 + several, sharey=True, squeeze=False)[0]
    for axes in (*compared, by_run):
        axes.set(yticks=range(len(groups)), yticklabels=names, ylim=(-0.6, len(groups) - 0.4))
        axes.grid(axis="x", alpha=0.3)
    for row, group in enumerate(groups):
        look = {name: styles[group.label][name] for name in ("marker", "color")}
        values = list(group.values.values())
        by_run.plot(values, [row + 0.2] * len(values), linestyle="", alpha=0.5, markersize=5, **look)
        _interval(by_run, row - 0.1, group.estimate.mean, group.estimate.interval, look)
        difference = one.differences.get(group.label)
        if difference and difference.mean is not None:
            _interval(compared[0], row, difference.mean, difference.interval, look)
    draw_references(by_run, one.references, upright=True)
    by_run.set_xlabel(printable(metric.label))
    if metric.is_proportion:  # at their own scale, seeds that are alike would look far apart
        by_run.set_xlim(-0.03, 1.03)
    for label, group in zip((compared or [by_run])[0].get_yticklabels(), groups, strict=True):
        label.set_fontweight("bold" if one.best and group.label in one.best.members else "normal")
    better = "right" if metric.higher_is_better else "left"
    for axes in compared:
        axes.axvline(0, color="black", linewidth=1)
        unit = printable(f", {metric.short_unit}") if metric.short_unit and not metric.is_proportion else ""
        axes.set_xlabel(f"difference from {wrapped(one.baseline)}{unit} (better: {better})")
    caption = _BY_RUN.format(baseline=one.baseline) if several else _ALONE
    if one.best:
        caption += " Groups in bold may be the best."
    if len(drawn) < len(one.groups):
        caption += f" The {MOST_DRAWN} best groups and the baseline are drawn; the table has all {len(one.groups)}."
    return blocks.Figure("results", "Differences", caption, figure)


def _interval(axes: Axes, row: float, mean: float, interval: Interval | None, look: dict[str, Any]) -> None:
    """Draw a mean with its interval, if known."""
    ends = [[mean - interval.low], [interval.high - mean]] if interval else None
    axes.errorbar(mean, row, xerr=ends, linestyle="", capsize=3, markersize=7, **look)


# Figures over a setting

Curves = dict[str, dict[float, list[float]]]  # by label and the value of the setting: the value of each seed

_CAPTION = (
    "Each line is the mean over seeds, and each bar reaches from the worst seed to the best. The best point of a line "
    "looks better than it is if these values chose it."
)


def setting_figures(titled: Mapping[str, Comparison]) -> list[blocks.Figure]:
    """Return a figure for each numeric setting that varies within a name, with a panel for each kind of data."""
    grids = {title: by_name(one.groups).values() for title, one in titled.items()}
    names = dict.fromkeys(name for of_data in grids.values() for groups in of_data for name in _numbers(groups))
    figures = []
    for name in names:
        curves = {title: _curves(of_data, name) for title, of_data in grids.items()}
        having = {title: of for title, of in curves.items() if of}
        figures.append(blocks.Figure(f"over_{name}", f"By {name}", _CAPTION, _figure(name, having, titled)))
    return figures


def _numbers(groups: Sequence[Group]) -> list[str]:
    varied = varied_settings(groups)
    return [name for name in varied if all(is_number(group.settings.get(name)) for group in groups)]


def _curves(grids: Iterable[Sequence[Group]], name: str) -> Curves:
    """Return a curve for each name whose groups differ in the setting, and each combination of the others that
    differ."""
    curves: Curves = {}
    for groups in grids:
        if name in _numbers(groups):
            others = [key for key in varied_settings(groups) if key != name]
            for group in groups:
                label = " ".join([group.name, *(f"{key}={group.settings.get(key)}" for key in others)])
                curves.setdefault(label, {})[float(group.settings[name])] = list(group.values.values())
    return {label: dict(sorted(points.items())) for label, points in curves.items()}


def _figure(name: str, curves: Mapping[str, Curves], titled: Mapping[str, Comparison]) -> Figure:
    styles = styles_of({label for of_data in curves.values() for label in of_data})
    values = sorted({value for of_data in curves.values() for points in of_data.values() for value in points})
    figure = Figure(figsize=(3.9 * len(curves) + 1.6, 3.9), layout="constrained")
    for (title, of_data), axes in zip(curves.items(), figure.subplots(1, len(curves), squeeze=False)[0], strict=True):
        for label, points in of_data.items():
            look: dict[str, Any] = {"markersize": 5} | styles[label]
            axes.plot(list(points), [fmean(seeds) for seeds in points.values()], **look)
            worst, best = ([of(seeds) for seeds in points.values()] for of in (min, max))
            axes.vlines(list(points), worst, best, color=look["color"], linewidth=1.1, alpha=0.6)
        metric = titled[title].metric
        scale = " (log scale)" if geometric(values) else ""
        title = wrapped(title) if len(curves) > 1 else ""
        axes.set(title=title, xlabel=printable(name) + scale, ylabel=printable(metric.label))
        if metric.is_proportion:
            axes.set_ylim(-0.04, 1.04)
        if geometric(values):
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.grid(alpha=0.3)
    add_legend(figure)
    return figure


def geometric(values: Sequence[float]) -> bool:
    """Return whether rising values grow by factors rather than by differences."""
    if len(values) < 2 or values[0] <= 0:
        return False
    steps = np.diff(values)
    widening = (np.diff(steps) >= 0).all() and (len(steps) == 1 or steps[-1] > steps[0])
    return bool(values[-1] >= 4 * values[0] and widening)
