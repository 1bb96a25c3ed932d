"""Pareto fronts: figures over training time and over the scheme's parameters."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from poslab.comparison.compare import Comparison
from poslab.comparison.effects import training_minutes
from poslab.comparison.figures import Styles, add_legend
from poslab.comparison.groups import Group

_FEW = 100  # parameters up to which the axis is linear, so that none has a place


def trade_off_figure(comparison: Comparison, styles: Styles) -> Figure | None:
    """Draw each group's mean figure over the training time and over the scheme's parameters, with Pareto fronts.

    Returns None unless there are two groups.
    """
    costs = {
        "training, minutes (validations left out)": [training_minutes(group) for group in comparison.groups],
        "parameters of the scheme": [group.mean("params_scheme") for group in comparison.groups],
    }
    if len(comparison.groups) < 2:
        return None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, (name, of_groups) in zip(figure.subplots(1, len(costs), sharey=True), costs.items(), strict=True):
        known = [(x, group) for x, group in zip(of_groups, comparison.groups, strict=True) if x is not None]
        _draw(axes, known, comparison, styles)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel(comparison.score.label)
    figure.axes[0].xaxis.set_major_locator(MaxNLocator(5))
    figure.axes[1].set_xscale("symlog", linthresh=_FEW)
    figure.axes[1].set_xlim(left=-_FEW / 4)
    add_legend(figure, [styles[group.label]["label"] for group in comparison.groups])
    return figure


def _draw(axes: Axes, known: Sequence[tuple[float, Group]], comparison: Comparison, styles: Styles) -> None:
    for cost, group in known:
        look = {name: styles[group.label][name] for name in ("marker", "color", "label")}
        found = group.estimate
        if found.interval:
            axes.vlines(cost, *found.interval, color=look["color"], alpha=0.35)
        axes.plot(cost, found.mean, linestyle="", **look)
    best = front([(cost, comparison.score.metric.sign * group.estimate.mean) for cost, group in known])
    line = [(known[n][0], known[n][1].estimate.mean) for n in best]
    if line:
        axes.plot(*zip(*line, strict=True), color="#555555", linewidth=1, drawstyle="steps-post", zorder=0)


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other point dominates, sorted by their first coordinate."""
    order = sorted(range(len(points)), key=lambda n: points[n])
    best: list[int] = []
    for n in order:
        if not best or points[n][1] < points[best[-1]][1] or points[n] == points[best[-1]]:
            best.append(n)
    return best
