"""Figures of tasks, a panel for each: metrics by length, and the steps until the training range was solved."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from poslab.comparison.figures import Styles, add_legend
from poslab.comparison.tasks import TaskRuns
from poslab.report.looks import wrapped
from poslab.tasks import Metric

MOST_RANGES = 10  # schemes whose ranges can still be told apart
_BESIDE = 6  # lengths of which the schemes' points stand side by side; of more, one above the other
_WIDE = 16  # times the shortest length, from which on the axis is logarithmic
_SHADE = "#EDEDED"


def by_length_figure(tasks: Sequence[TaskRuns], metric: str, styles: Styles) -> Figure:
    """Draw the metric by the length of the tests: means over all seeds, with lines from the worst seed to the best."""
    names = [str(look["label"]) for label, look in styles.items() if any(label in task.runs for task in tasks)]
    lines = sum(name.count("\n") + 1 for name in names) + 2
    columns = _columns(tasks)
    rows = math.ceil(len(tasks) / columns)
    legend = 0.9 + 0.075 * max(len(line) for name in names for line in name.split("\n"))  # inches
    size = (3.9 * columns + legend, max(3.5 * rows, 0.19 * lines + 0.4))
    figure, panels = _panels(tasks, columns, size)
    for number, (task, axes) in enumerate(zip(tasks, panels, strict=True)):
        _by_length(axes, task, _named(task, metric), styles)
        if number % columns == 0:
            axes.set_ylabel(f"{metric}, {_named(task, metric).unit}")
        if number >= len(tasks) - columns:
            axes.set_xlabel("length of the tests")
    add_legend(figure, names)
    return figure


def steps_figure(tasks: Sequence[TaskRuns], styles: Styles) -> Figure:
    """Draw each seed at the step of the first validation that solved the training range, or as a cross if none did."""
    columns = _columns(tasks)
    rows = [tasks[start : start + columns] for start in range(0, len(tasks), columns)]
    heights = [1.1 + 0.21 * max(_lines(task, styles) for task in row) for row in rows]
    size = (0.4 + 4.2 * columns, sum(heights))
    figure, panels = _panels(tasks, columns, size, short=True, height_ratios=heights)
    for number, (task, axes) in enumerate(zip(tasks, panels, strict=True)):
        _steps(axes, task, styles)
        if number >= len(tasks) - columns:
            axes.set_xlabel("step at which the range was solved")
    return figure


def _panels(
    tasks: Sequence[TaskRuns], columns: int, size: tuple[float, float], *, short: bool = False, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each task, row by row."""
    figure = Figure(figsize=size, layout="constrained")
    every = figure.subplots(math.ceil(len(tasks) / columns), columns, squeeze=False, gridspec_kw=grid).flatten()
    for axes in every[len(tasks) :]:
        axes.set_axis_off()
    panels = list(every[: len(tasks)])
    for task, axes in zip(tasks, panels, strict=True):
        lengths = "" if short else f"trained on lengths {task.trained[0]} to {task.trained[1]}, "
        axes.set_title(f"{wrapped(task.name)}\n{lengths}solved by {task.solved()} runs", fontsize="medium")
    return figure, panels


def _columns(tasks: Sequence[TaskRuns]) -> int:
    """Return the number of panels side by side that fills the last row best."""
    return 2 if len(tasks) == 4 else min(3, len(tasks))


def _named(task: TaskRuns, metric: str) -> Metric:
    return task.first.summary.measure(metric)


def _by_length(axes: Axes, task: TaskRuns, metric: Metric, styles: Styles) -> None:
    lengths, (shortest, longest) = task.lengths(metric.name), task.trained
    gap = float(min(np.diff(lengths), default=0.5 * lengths[0]))
    wide = lengths[-1] >= _WIDE * lengths[0]
    room = 0.38 * gap if len(lengths) <= _BESIDE and not wide else 0.0  # to either side of a length
    left, right = max(0.0, lengths[0] - 0.62 * gap), lengths[-1] + max(1.15 * room, 0.04 * lengths[-1])
    if wide:
        left, right = 0.87 * lengths[0], 1.15 * lengths[-1]
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.axvspan(max(left, shortest - room), longest + room, color=_SHADE, zorder=0, label="lengths of training")
    if chance := task.chance(metric.name):
        places = [left, *chance, right]
        shares = [chance[min(chance)], *chance.values(), chance[max(chance)]]
        axes.plot(places, shares, color="#333333", linestyle=":", linewidth=1.2, label="chance", zorder=1)
    labels = [label for label in styles if label in task.runs]
    offsets = np.linspace(-room, room, len(labels) + 2)[1:-1]
    for label, offset in zip(labels, offsets, strict=True):
        of_lengths = {n: values for n in lengths if (values := task.values(label, metric.name, n))}
        places, means = [n + offset for n in of_lengths], [np.mean(values) for values in of_lengths.values()]
        look: dict[str, Any] = {"markersize": 4.5, "linewidth": 1.1} | styles[label]
        axes.plot(places, means, alpha=0.9, **look)
        if len(labels) <= MOST_RANGES:
            worst, best = ([of(values) for values in of_lengths.values()] for of in (min, max))
            axes.vlines(places, worst, best, color=look["color"], linewidth=1.1, alpha=0.6)
    axes.set_xticks(lengths, [f"{n}\n{task.multiple(n)}" for n in lengths], fontsize="small" if wide else None)
    axes.set_xlim(left, right)
    if metric.is_proportion:
        axes.set_ylim(-0.04, 1.04)
    axes.grid(axis="y", alpha=0.3)


def _steps(axes: Axes, task: TaskRuns, styles: Styles) -> None:
    labels = list(task.runs)[::-1]
    limit = max(run.summary.steps for run in task.all_runs)
    never, right = 1.2 * limit, 1.34 * limit
    axes.axvspan(1.06 * limit, right, color=_SHADE, zorder=0)
    for row, label in enumerate(labels):
        steps = task.solved_steps(label)
        solved = sorted(step for step in steps if step is not None)
        heights = row + 0.18 * (np.arange(len(solved)) % 3 - 1)  # so that seeds of one step can be told apart
        crosses = never + 0.018 * limit * (np.arange(len(steps) - len(solved)) - (len(steps) - len(solved) - 1) / 2)
        dots = {"linestyle": "", "color": styles[label]["color"], "markersize": 5, "alpha": 0.75}
        axes.plot(solved, heights, marker=styles[label]["marker"], **dots)
        axes.plot(crosses, [row] * len(crosses), **dots | {"marker": "x", "markersize": 4})
    axes.set_yticks(range(len(labels)), [f"{styles[label]['label']}  {task.solved([label])}" for label in labels])
    axes.tick_params(axis="y", labelsize="small")
    axes.set(xlim=(0, right), ylim=(-0.6, len(labels) - 0.4))
    ticks = [tick for tick in MaxNLocator(4, integer=True).tick_values(0, limit) if tick <= limit]
    axes.set_xticks([*ticks, never], [*(f"{tick:,.0f}" for tick in ticks), "\nnever"])
    axes.grid(alpha=0.3)


def _lines(task: TaskRuns, styles: Styles) -> int:
    """Return the number of text lines that the labels take up below each other."""
    return sum(str(styles[label]["label"]).count("\n") + 1 for label in task.runs)
