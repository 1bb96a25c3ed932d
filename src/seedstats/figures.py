"""Figures of a comparison, over groups of runs; a group has the same look in all of them.

Each figure is panels of their own, which a page puts side by side where there is room.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedstats.comparison import Comparison
from seedstats.groups import Group
from seedstats.page import blocks
from seedstats.page.looks import INK, SOFT, looks_of, new_panel, printable, styled, wrapped
from seedstats.statistics.intervals import Interval

Styles = Mapping[str, dict[str, Any]]  # by label, for matplotlib's plot
MOST_DRAWN = 40  # groups whose rows can still be read
MOST_NAMED, _LONG = 10, 34  # lines that have room for their names at their ends, and characters of a name
DOTTED: dict[str, Any] = {"color": SOFT[0], "linestyle": ":", "linewidth": 1}
_IN_COLUMN = 16  # names of a legend
_LINE = 0.16  # inches of a line of small text


def styles_of(labels: Iterable[str], baseline: str | None = None) -> Styles:
    """Return a line style for each label, in alphabetical order; the baseline's label says so and its line is
    thicker."""
    styles = {label: look | {"label": wrapped(label)} for label, look in looks_of(labels).items()}
    if baseline is not None:
        styles[baseline] |= {"label": wrapped(f"{baseline} (baseline)"), "linewidth": 2.5}
    return styles


def name_lines(axes: Axes, styles: Styles) -> None:
    """Write the names of an axes' lines at their ends, one above the other, unless they `need_legend`."""
    if need_legend(styles):
        return
    colours = {str(look["label"]): look["color"] for look in styles.values()}
    ends = []
    for line in axes.lines:
        heights = np.asarray(line.get_ydata(), dtype=float)
        finite = heights[np.isfinite(heights)]
        if str(line.get_label()) in colours and len(finite):
            ends.append((float(finite[-1]), str(line.get_label())))
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    step = (high - low) * _LINE / (0.75 * axes.figure.get_figheight())  # type: ignore[union-attr]
    place = -np.inf
    for end, name in sorted(ends):
        place = max(end, place)
        axes.annotate(
            name,
            (right, place),
            xytext=(5, 0),
            textcoords="offset points",
            annotation_clip=False,
            color=colours[name],
            size="small",
            va="center",
        )
        place += step * (name.count("\n") + 1)
    axes.set_xlim(right=right)


def need_legend(styles: Styles) -> bool:
    """Return whether names are too many or too long to stand within a figure."""
    return len(styles) > MOST_NAMED or any(len(str(look["label"])) > _LONG for look in styles.values())


def name_points(axes: Axes, points: Mapping[str, tuple[float, float]], styles: Styles) -> None:
    """Write the names of points by label beside them, unless they `need_legend`."""
    if need_legend(styles):
        return
    for label, point in points.items():
        look, left = styles[label], axes.transAxes.inverted().transform(axes.transData.transform(point))[0] < 0.5
        offset: dict[str, Any] = {"xytext": (6 if left else -6, 5), "ha": "left" if left else "right"}
        axes.annotate(
            str(look["label"]), point, textcoords="offset points", color=look["color"], size="small", **offset
        )


@styled()
def legend(styles: Styles, others: Mapping[str, dict[str, Any]] | None = None) -> Figure:
    """Return a panel with nothing but the names of many lines, in columns. others: looks of further lines, by name."""
    columns = 1 + (len(styles) - 1) // _IN_COLUMN
    lines = sum(str(look["label"]).count("\n") + 1 for look in styles.values()) + len(others or {})
    figure = Figure(figsize=(4.6, 0.3 + 0.2 * -(-lines // columns)), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    for look in styles.values():
        axes.plot([], [], **look)
    for name, look in (others or {}).items():
        axes.plot([], [], label=name, **look)
    axes.legend(loc="upper left", ncols=columns, borderaxespad=0)
    return figure


def draw_references(axes: Axes, values: Mapping[str, float], *, upright: bool = False) -> None:
    """Draw a named line at each reference within the axes, without changing their limits."""
    low, high = axes.get_xlim() if upright else axes.get_ylim()
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    ends = [(line[0], line[-1]) for line in lines if len(line)]
    for name, value in values.items():
        if low <= value <= high and upright:
            axes.axvline(value, **DOTTED)
            axes.text(
                value, 1, printable(name), transform=axes.get_xaxis_transform(), size="small", ha="center", va="bottom"
            )
        elif low <= value <= high:
            axes.axhline(value, **DOTTED)
            gaps = [min((abs(end[side] - value) for end in ends), default=0.0) for side in (0, 1)]
            place, side = (0.01, "left") if gaps[0] > gaps[1] else (0.99, "right")  # where the lines leave room
            axes.text(
                place, value, printable(name), transform=axes.get_yaxis_transform(), size="small", ha=side, va="bottom"
            )


_DIFFERENCES = "The mean difference from {baseline} over common seeds, with the interval to quote. "
_RUNS = "Each small mark is a run, the large mark below is the mean with its 95 % interval."
_WIDTH = 5.4  # inches of a panel of rows


@styled()
def scores_figure(comparison: Comparison) -> blocks.Figure:
    """Draw how each group differs from the baseline, and each run as a dot with the group's mean."""
    drawn = [
        group
        for place, group in enumerate(comparison.groups)
        if place < MOST_DRAWN or group.label == comparison.baseline
    ]
    groups, metric = drawn[::-1], comparison.metric
    styles = styles_of((group.label for group in groups), comparison.baseline)
    panels = [_differences(comparison, groups, styles)] if len(groups) > 1 else []
    runs, by_run = _rows(comparison, groups, styles)
    for row, group in enumerate(groups):
        look = {name: styles[group.label][name] for name in ("marker", "color")}
        values = list(group.values.values())
        by_run.plot(values, [row + 0.2] * len(values), linestyle="", alpha=0.5, markersize=5, **look)
        _interval(by_run, row - 0.1, group.estimate.mean, group.estimate.interval, look)
    if metric.is_proportion:  # at their own scale, seeds that are alike would look far apart
        by_run.set_xlim(-0.03, 1.03)
    draw_references(by_run, comparison.references, upright=True)
    by_run.set_xlabel(printable(metric.label))
    caption = (_DIFFERENCES.format(baseline=comparison.baseline) if panels else "") + _RUNS
    if comparison.best:
        caption += " Groups in bold may be the best."
    if len(drawn) < len(comparison.groups):
        caption += (
            f" The {MOST_DRAWN} best groups and the baseline are drawn; the table has all {len(comparison.groups)}."
        )
    return blocks.Figure("results", "Differences", caption, [*panels, runs])


def _differences(comparison: Comparison, groups: Sequence[Group], styles: Styles) -> Figure:
    figure, axes = _rows(comparison, groups, styles)
    for row, group in enumerate(groups):
        difference = comparison.differences.get(group.label)
        if difference and difference.mean is not None:
            look = {name: styles[group.label][name] for name in ("marker", "color")}
            _interval(axes, row, difference.mean, difference.interval, look)
    axes.axvline(0, color=INK[0], linewidth=1)
    better = "right" if comparison.metric.higher_is_better else "left"
    unit = (
        f", {comparison.metric.short_unit}"
        if comparison.metric.short_unit and not comparison.metric.is_proportion
        else ""
    )
    axes.set_xlabel(wrapped(f"difference from {comparison.baseline}{unit} (better: {better})", 50))
    return figure


def _rows(comparison: Comparison, groups: Sequence[Group], styles: Styles) -> tuple[Figure, Axes]:
    """Return a panel with a row for each group, and its axes."""
    failed = {group.label: f"\n{len(group.diverged)} diverged" if group.diverged else "" for group in groups}
    names = [styles[group.label]["label"] + failed[group.label] for group in groups]
    height = 0.32 + 0.16 * max(name.count("\n") for name in names)  # inches of a row
    figure, axes = new_panel(_WIDTH, 0.9 + height * len(groups))
    axes.set(yticks=range(len(groups)), yticklabels=names, ylim=(-0.6, len(groups) - 0.4))
    axes.tick_params(axis="y", length=0, labelcolor=INK[0])
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    for label, group in zip(axes.get_yticklabels(), groups, strict=True):
        label.set_fontweight("bold" if comparison.best and group.label in comparison.best.members else "normal")
    return figure, axes


def _interval(axes: Axes, row: float, mean: float, interval: Interval | None, look: dict[str, Any]) -> None:
    """Draw a mean with its interval, if known."""
    ends = [[mean - interval.low], [interval.high - mean]] if interval else None
    axes.errorbar(mean, row, xerr=ends, linestyle="", capsize=3, markersize=7, **look)
