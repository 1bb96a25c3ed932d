"""What schemes cost: parameters, speed and memory, beside what they reach."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedstats.comparison import Comparison
from seedstats.figures import Styles, add_legend
from seedstats.groups import Group
from seedstats.page import blocks

SPEED = "tokens_per_s"
_FEW_PARAMETERS = 100  # up to which their axis is linear, so that it has a zero
_UNEVEN = 1.2  # the speed of a scheme's fastest seed over that of its slowest
_CAPTION = (
    "Means over seeds with 95 % intervals. Left, over the speed of training: the median seed, with a line from the "
    "slowest to the fastest. Right, over the parameters that the scheme adds. Schemes on a grey line (the Pareto "
    "front) are beaten by no other in both at once; there is none where speeds overlap."
)


def cost_columns(one: Comparison) -> dict[str, Mapping[str, str]]:
    """Return the columns of costs that the table of groups has, by their heads, with a cell for each label."""
    columns: dict[str, Mapping[str, str]] = {}
    for name, head in (("params_scheme", "parameters added"), (SPEED, "tokens/s"), ("peak_memory_mb", "peak MB")):
        known = {group.label: f"{median(of.values()):,.0f}" for group in one.groups if (of := group.of(name))}
        columns |= {head: known} if known else {}
    return columns


def uneven_speed(one: Comparison) -> list[str]:
    """Return a caveat on schemes whose seeds trained at unlike speeds, as other programs then ran beside some."""
    ranges = {group.label: _range(group) for group in one.groups if len(group.of(SPEED)) > 1}
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


def cost_figure(one: Comparison, styles: Styles) -> blocks.Figure | None:
    """Draw each group's mean over its speed and over the scheme's parameters; None unless two groups know both."""
    groups = [group for group in one.groups if group.of(SPEED) and group.of("params_scheme")]
    if len(groups) < 2:
        return None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    speed, parameters = figure.subplots(1, 2, sharey=True)
    speed.xaxis.set_major_locator(MaxNLocator(5))
    speed.xaxis.set_major_formatter("{x:,.0f}")
    speed.set(xlabel="training speed, tokens/s", ylabel=one.metric.label)
    parameters.set_xscale("symlog", linthresh=_FEW_PARAMETERS)
    parameters.xaxis.set_major_formatter("{x:,.0f}")
    parameters.set_xlabel("parameters of the scheme")
    for axes, name in ((speed, SPEED), (parameters, "params_scheme")):
        points = [(median(group.of(name).values()), group.estimate.mean) for group in groups]
        for (cost, mean), group in zip(points, groups, strict=True):
            look = {key: styles[group.label][key] for key in ("marker", "color", "label")}
            axes.plot(cost, mean, linestyle="", **look)
            if group.estimate.interval:
                axes.vlines(cost, *group.estimate.interval, color=look["color"], alpha=0.35)
        faster = -1 if name == SPEED else 1
        if name != SPEED or all(slower[1] < faster[0] for slower, faster in pairwise(sorted(map(_range, groups)))):
            best = front([(faster * cost, one.metric.sign * mean) for cost, mean in points])
            line = zip(*(points[n] for n in best), strict=True)
            step = "steps-pre" if name == SPEED else "steps-post"
            axes.plot(*line, color="#555555", linewidth=1, drawstyle=step, zorder=0)
        axes.grid(alpha=0.3)
    for group in groups:
        speed.hlines(group.estimate.mean, *_range(group), color=styles[group.label]["color"], alpha=0.35)
    parameters.set_xlim(left=-_FEW_PARAMETERS / 4)
    add_legend(figure, [styles[group.label]["label"] for group in groups])
    return blocks.Figure("costs", "What it costs", _CAPTION, figure)


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other point dominates, sorted by their first coordinate; lower is
    better."""
    ranked = pd.DataFrame(points, columns=["cost", "figure"], dtype=float).sort_values(["cost", "figure"])
    best_before = ranked["figure"].cummin().shift(fill_value=np.inf)
    return ranked.index[ranked["figure"] < best_before].tolist()
