"""Figures of tasks, a panel for each: metrics by length, and the steps until the training range was solved."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from poslab.comparison.tasks import TaskRuns
from poslab.metric import Metric
from seedstats.figures import DOTTED, Styles, legend, name_lines, need_legend, styles_of
from seedstats.page import blocks
from seedstats.page.looks import LINE, new_panel, printable, styled, wrapped

_MOST_RANGES = 10  # schemes whose ranges can still be told apart
_BESIDE = 6  # lengths of which the schemes' points stand side by side; of more, one above the other
_WIDE = 16  # times the shortest length, from which on the axis is logarithmic
_SHADE: dict[str, Any] = {"color": LINE[0], "alpha": 0.5, "linewidth": 0, "zorder": 0}

_BY_LENGTH = (
    "Each point is the mean over all seeds{ranges}. Grey are the lengths of training, up to the longest of them, 1×. "
    "Where lengths are few, points of one length stand side by side, so that none hides another. Dotted: what the most "
    "frequent answer alone gives. What is low within the grey was not learned, or not in sight, whatever it does "
    "beyond it; a line that rises with the length would be a surprise."
)
_OF_OTHERS = "To be read as the figure before. What is right in parts only shows here."
_RANGES = ", and the line through it reaches from the worst of them to the best"
_STEPS = (
    "Each mark is a seed, at the first validation that got 99 % of the examples within the lengths of training right; "
    "a cross is one that never did. Where a row's marks lie far apart, what its scheme gets right beyond the range is "
    "as much a matter of the seed."
)


def task_panels(tasks: Sequence[TaskRuns], baseline: str) -> list[blocks.Figure]:
    """Return figures with a panel for each task."""
    labels = {label for task in tasks for label in task.runs}
    styles = styles_of(labels, baseline if baseline in labels else None)
    ranges = _RANGES if len(labels) <= _MOST_RANGES else ""
    figures: list[blocks.Figure] = []
    for metric in dict.fromkeys(measure.name for task in tasks for measure in task.measures):
        panels = by_length_panels([task for task in tasks if task.lengths(metric)], metric, styles)
        title = f"{metric[0].upper()}{metric[1:]} by length"
        caption = _OF_OTHERS if figures else _BY_LENGTH.format(ranges=ranges)
        figures.append(blocks.Figure(f"{metric}_by_length", title, caption, panels))
    steps = blocks.Figure("steps", "Steps until the range is solved", _STEPS, steps_panels(tasks, styles))
    return [*figures, steps]


@styled()
def by_length_panels(tasks: Sequence[TaskRuns], metric: str, styles: Styles) -> list[Figure]:
    """Draw the metric by the length of the tests: means over all seeds, with lines from the worst seed to the best."""
    panels = []
    for task in tasks:
        figure, axes = new_panel(4.6, 3.4)
        measure = task.first.summary.measure(metric)
        _by_length(axes, task, measure, styles)
        shortest, longest = task.trained
        _title(axes, task, f"trained on lengths {shortest} to {longest}, ")
        axes.set(xlabel="length of the tests", ylabel=printable(f"{metric}, {measure.unit}"))
        name_lines(axes, styles)
        panels.append(figure)
    return [*panels, legend(styles)] if need_legend(styles) else panels


@styled()
def steps_panels(tasks: Sequence[TaskRuns], styles: Styles) -> list[Figure]:
    """Draw each seed at the step of the first validation that solved the training range, or as a cross if none did."""
    panels = []
    for task in tasks:
        lines = sum(str(styles[label]["label"]).count("\n") + 1 for label in task.runs)
        figure, axes = new_panel(4.6, 1.1 + 0.21 * lines)
        _steps(axes, task, styles)
        _title(axes, task)
        axes.set_xlabel("step at which the range was solved")
        panels.append(figure)
    return panels


def _title(axes: Axes, task: TaskRuns, lengths: str = "") -> None:
    axes.set_title(f"{wrapped(task.name)}\n{lengths}solved by {task.solved()} runs", fontsize="medium")


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
    axes.axvspan(max(left, shortest - room), longest + room, label="lengths of training", **_SHADE)
    if chance := task.chance(metric.name):
        shares = np.interp([left, *chance, right], sorted(chance), [chance[n] for n in sorted(chance)])
        axes.plot([left, *chance, right], shares, label="chance", zorder=1, **DOTTED)
        axes.annotate(
            "chance", (right, shares[-1]), xytext=(-2, 2), textcoords="offset points", ha="right", size="small"
        )
    labels = [label for label in styles if label in task.runs]
    offsets = np.linspace(-room, room, len(labels) + 2)[1:-1]
    for label, offset in zip(labels, offsets, strict=True):
        by_length = {n + offset: values for n in lengths if (values := task.values(label, metric.name, n))}
        look: dict[str, Any] = {"markersize": 4.5, "linewidth": 1.1} | styles[label]
        axes.plot([*by_length], [*map(np.mean, by_length.values())], alpha=0.9, **look)
        if len(labels) <= _MOST_RANGES:
            worst, best = ([*map(of, by_length.values())] for of in (min, max))
            axes.vlines([*by_length], worst, best, color=look["color"], linewidth=1.1, alpha=0.6)
    axes.set_xticks(lengths, [f"{n}\n{task.multiple(n)}" for n in lengths], fontsize="small" if wide else None)
    axes.set_xlim(left, right)
    if metric.is_proportion:
        axes.set_ylim(-0.04, 1.04)
    axes.grid(visible=False, axis="x")


def _steps(axes: Axes, task: TaskRuns, styles: Styles) -> None:
    labels = list(task.runs)[::-1]
    limit = max(run.summary.steps for run in task.all_runs)
    never, right = 1.2 * limit, 1.34 * limit
    axes.axvspan(1.06 * limit, right, **_SHADE)
    for row, label in enumerate(labels):
        solved = task.solved_steps(label)
        unsolved = task.seeds(label) - len(solved)
        heights = row + 0.18 * (np.arange(len(solved)) % 3 - 1)  # so that seeds of one step can be told apart
        crosses = never + 0.018 * limit * (np.arange(unsolved) - (unsolved - 1) / 2)
        dots = {"linestyle": "", "color": styles[label]["color"], "markersize": 5, "alpha": 0.75}
        axes.plot(solved, heights, marker=styles[label]["marker"], **dots)
        axes.plot(crosses, [row] * unsolved, **dots | {"marker": "x", "markersize": 4})
    axes.set_yticks(range(len(labels)), [f"{styles[label]['label']}  {task.solved([label])}" for label in labels])
    axes.tick_params(axis="y", labelsize="small")
    axes.set(xlim=(0, right), ylim=(-0.6, len(labels) - 0.4))
    ticks = [tick for tick in MaxNLocator(4, integer=True).tick_values(0, limit) if tick <= limit]
    axes.set_xticks([*ticks, never], [*(f"{tick:,.0f}" for tick in ticks), "\nnever"])
