"""What schemes cost: parameters, speed and memory, beside what they reach."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from seedstats.comparison import Comparison
from seedstats.figures import Styles, legend, name_points, need_legend
from seedstats.groups import Group
from seedstats.page import blocks
from seedstats.page.looks import SOFT, new_panel, printable, styled

SPEED = "tokens_per_s"
_FEW_PARAMETERS = 100  # up to which their axis is linear, so that it has a zero
_UNEVEN = 1.2  # the speed of a scheme's fastest seed over that of its slowest
_CAPTION = (
    "Means over seeds with 95 % intervals, by the speed of training (the median seed, with a line from the slowest to "
    "the fastest), and by the parameters that the scheme adds. Schemes on a grey line (the Pareto front) are beaten by "
    "no other in both at once; there is none where speeds overlap."
)


def cost_columns(comparison: Comparison) -> dict[str, Mapping[str, str]]:
    """Return the columns of costs that the table of groups has, by their heads, with a cell for each label."""
    columns: dict[str, Mapping[str, str]] = {}
    for name, head in (("params_scheme", "parameters added"), (SPEED, "tokens/s"), ("peak_memory_mb", "peak MB")):
        medians = {group.label: f"{median(of.values()):,.0f}" for group in comparison.groups if (of := group.of(name))}
        columns |= {head: medians} if medians else {}
    return columns


def uneven_speed(comparison: Comparison) -> list[str]:
    """Return a caveat on schemes whose seeds trained at unlike speeds, as other programs then ran beside some."""
    ranges = {group.label: _range(group) for group in comparison.groups if len(group.of(SPEED)) > 1}
    uneven = [label for label, (slowest, fastest) in ranges.items() if fastest > _UNEVEN * slowest]
    percent = f"{100 * (_UNEVEN - 1):.0f} %"
    return (
        [f"Speeds can't be compared: seeds of {', '.join(uneven)} differ in theirs by more than {percent}"]
        if uneven
        else []
    )


def _range(group: Group) -> tuple[float, float]:
    speeds = group.of(SPEED).values()
    return min(speeds), max(speeds)


@styled()
def cost_figure(comparison: Comparison, styles: Styles) -> blocks.Figure | None:
    """Draw each group's mean over its speed and over the scheme's parameters; None unless two groups know both."""
    groups = [group for group in comparison.groups if group.of(SPEED) and group.of("params_scheme")]
    if len(groups) < 2:
        return None
    speed, axes = _panel(comparison, groups, SPEED, styles)
    axes.set_xlabel("training speed, tokens/s")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    for group in groups:
        axes.hlines(group.estimate.mean, *_range(group), color=styles[group.label]["color"], alpha=0.35)
    ranges = sorted(map(_range, groups))
    if all(slower[1] < faster[0] for slower, faster in pairwise(ranges)):
        _draw_front(axes, comparison, groups, SPEED)
    parameters, axes = _panel(comparison, groups, "params_scheme", styles)
    axes.set_xlabel("parameters of the scheme")
    axes.set_xscale("symlog", linthresh=_FEW_PARAMETERS)
    _draw_front(axes, comparison, groups, "params_scheme")
    most = max(median(group.of("params_scheme").values()) for group in groups)
    axes.set_xlim(-_FEW_PARAMETERS / 8, 2 * max(most, _FEW_PARAMETERS))
    powers = [10**n for n in range(2, 12) if 10**n <= 2 * most]
    axes.set_xticks([0, *powers[:: 1 + len(powers) // 5]])
    axes.xaxis.set_minor_locator(NullLocator())
    panels = [speed, parameters]
    for panel in panels:
        panel.axes[0].xaxis.set_major_formatter("{x:,.0f}")
    if need_legend(styles):
        panels.append(legend({group.label: styles[group.label] for group in groups}))
    return blocks.Figure("costs", "What it costs", _CAPTION, panels)


def _panel(comparison: Comparison, groups: Sequence[Group], cost: str, styles: Styles) -> tuple[Figure, Axes]:
    """Return a panel of the groups' means over a cost, and its axes."""
    figure, axes = new_panel(4.6, 3.4)
    for group in groups:
        look = {key: styles[group.label][key] for key in ("marker", "color", "label")}
        x = median(group.of(cost).values())
        axes.plot(x, group.estimate.mean, linestyle="", **look)
        if group.estimate.interval:
            axes.vlines(x, *group.estimate.interval, color=look["color"], alpha=0.35)
    points = {group.label: (median(group.of(cost).values()), group.estimate.mean) for group in groups}
    name_points(axes, points, styles)
    axes.set_ylabel(printable(comparison.metric.label))
    return figure, axes


def _draw_front(axes: Axes, comparison: Comparison, groups: Sequence[Group], cost: str) -> None:
    """Draw the groups that no other beats in both the metric and a cost: a high speed is a low cost."""
    points = [(median(group.of(cost).values()), group.estimate.mean) for group in groups]
    sign = -1 if cost == SPEED else 1
    best = front([(sign * x, comparison.metric.sign * mean) for x, mean in points])
    line = zip(*(points[n] for n in best), strict=True)
    step = "steps-pre" if cost == SPEED else "steps-post"
    axes.plot(*line, color=SOFT[0], linewidth=1, drawstyle=step, zorder=0)


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other point dominates, sorted by their first coordinate; lower is
    better."""
    ranked = pd.DataFrame(points, columns=["cost", "figure"], dtype=float).sort_values(["cost", "figure"])
    best_before = ranked["figure"].cummin().shift(fill_value=np.inf)
    return ranked.index[ranked["figure"] < best_before].tolist()
