"""Figures and heat maps over a numeric setting that varies within a name."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from seedstats.comparison import Comparison
from seedstats.figures import Styles, legend, name_lines, need_legend, styles_of
from seedstats.finding import capital
from seedstats.groups import Group, by_name, is_number, varied_settings
from seedstats.metric import Metric
from seedstats.page import blocks
from seedstats.page.looks import new_panel, printable, styled, wrapped

Curves = dict[str, dict[float, list[float]]]  # by label and the value of the setting: the value of each seed

_CAPTION = (
    "Each line is the mean over seeds, and each bar reaches from the worst seed to the best. The best point of a line "
    "looks better than it is if these values chose it."
)
_MAP = (
    "Means over seeds; the best of each row is bold. Shades are ranks: the darker a cell, the better. The best of a "
    "row looks better than it is if these values chose it."
)


@styled()
def setting_figures(titled: Mapping[str, Comparison]) -> list[blocks.Figure]:
    """Return a figure for each numeric setting that varies within a name, with a panel for each kind of data."""
    figures = []
    for name, having in _over_settings(titled).items():
        styles = styles_of({label for grids in having.values() for label in grids})
        panels = [_panel(name, of, titled[title], title * (len(titled) > 1), styles) for title, of in having.items()]
        if need_legend(styles):
            panels.append(legend(styles))
        figures.append(blocks.Figure(f"over_{name}", f"By {name}", _CAPTION, panels))
    return figures


def setting_maps(comparison: Comparison) -> list[blocks.Table]:
    """Return a heat map for each numeric setting that varies within several names: a row for each name, a column for
    each value."""
    tables = []
    for name, having in _over_settings({"": comparison}).items():
        for curves in having.values():
            values = sorted({value for points in curves.values() for value in points})
            if len(curves) > 1 and len(values) > 1:
                heads = ["", *(f"{value:g}" for value in values)]
                heading = f"{capital(comparison.metric.title)} by name and {name}"
                tables.append(blocks.Table(heading, heads, _map_rows(curves, values, comparison.metric), _MAP))
    return tables


def _map_rows(curves: Curves, values: Sequence[float], metric: Metric) -> list[blocks.Row]:
    """Return the rows of a heat map, shaded by rank, as one value that is far off would make all others look alike."""
    losses = {
        (label, value): metric.sign * fmean(seeds)
        for label, points in curves.items()
        for value, seeds in points.items()
    }
    ranked = sorted(losses, key=lambda place: losses[place], reverse=True)  # the worst first
    rows: list[blocks.Row] = []
    for label, points in curves.items():
        best = min(losses[label, value] for value in points)
        row: list[str | blocks.Cell] = [label]
        for value in values:
            if value not in points:
                row.append("")
                continue
            seeds = ", ".join(metric.text(seed) for seed in points[value])
            row.append(
                blocks.Cell(
                    metric.text(fmean(points[value])),
                    f"{label}, {value:g}: {seeds} (each seed)",
                    marked=losses[label, value] == best,
                    shade=round(blocks.DARKEST * ranked.index((label, value)) / (len(ranked) - 1)),
                )
            )
        rows.append(row)
    return rows


def _over_settings(titled: Mapping[str, Comparison]) -> dict[str, dict[str, Curves]]:
    """Return the curves over each numeric setting that varies within a name, by setting and kind of data."""
    grids = {title: by_name(comparison.groups).values() for title, comparison in titled.items()}
    names = dict.fromkeys(name for data_grids in grids.values() for groups in data_grids for name in _numbers(groups))
    by_setting: dict[str, dict[str, Curves]] = {}
    for name in names:
        curves = {title: _curves(data_grids, name) for title, data_grids in grids.items()}
        by_setting[name] = {title: data_grids for title, data_grids in curves.items() if data_grids}
    return by_setting


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


def _panel(name: str, curves: Curves, comparison: Comparison, title: str, styles: Styles) -> Figure:
    values = sorted({value for points in curves.values() for value in points})
    figure, axes = new_panel(4.6, 3.4)
    for label, points in curves.items():
        look: dict[str, Any] = {"markersize": 5} | styles[label]
        axes.plot(list(points), [fmean(seeds) for seeds in points.values()], **look)
        worst, best = ([of(seeds) for seeds in points.values()] for of in (min, max))
        axes.vlines(list(points), worst, best, color=look["color"], linewidth=1.1, alpha=0.6)
    scale = " (log scale)" if geometric(values) else ""
    axes.set(title=wrapped(title), xlabel=printable(name) + scale, ylabel=printable(comparison.metric.label))
    if comparison.metric.is_proportion:
        axes.set_ylim(-0.04, 1.04)
    if geometric(values):
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, [f"{value:g}" for value in values])
    name_lines(axes, styles)
    return figure


def geometric(values: Sequence[float]) -> bool:
    """Return whether rising values grow by factors rather than by differences."""
    if len(values) < 2 or values[0] <= 0:
        return False
    steps = np.diff(values)
    widening = (np.diff(steps) >= 0).all() and (len(steps) == 1 or steps[-1] > steps[0])
    return bool(values[-1] >= 4 * values[0] and widening)
