"""Report on tasks: figures and a matrix over all, and for each task which schemes solve it, and errors."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from poslab.comparison.compare import Comparison
from poslab.comparison.error_analysis import WrongAtLength, wrong_by_length
from poslab.comparison.figures import styles_of
from poslab.comparison.panels import Panel
from poslab.comparison.table import Table
from poslab.comparison.task_figures import MOST_RANGES, by_length_figure, steps_figure
from poslab.comparison.tasks import TaskRuns
from poslab.config.schemes import is_task

SHADES = 10  # from chance to everything right
_A_TABLE = 6  # tasks side by side
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
_SOLVED = (
    "Solved: a validation got 99 % of the examples within the lengths of training right. Where few seeds did, the "
    "figures of those alone are the better half of a scheme's: they say what it can do, those of all seeds what to "
    "expect of it."
)


def task_runs(title: str, comparison: Comparison) -> TaskRuns | None:
    """Return the compared runs as those of a task, or None if they are of a text, or have no metric by length."""
    task = TaskRuns(title, {group.label: group.runs for group in comparison.groups})
    return task if is_task(task.first.config["data"]) and task.measures else None


def task_panels(tasks: Sequence[TaskRuns], baseline: str) -> list[Panel]:
    """Return figures with a panel for each task."""
    labels = {label for task in tasks for label in task.runs}
    styles = styles_of(labels, baseline if baseline in labels else None)
    ranges = _RANGES if len(labels) <= MOST_RANGES else ""
    panels: list[Panel] = []
    for metric in dict.fromkeys(measure.name for task in tasks for measure in task.measures):
        having = [task for task in tasks if task.lengths(metric)]
        figure = by_length_figure(having, metric, styles)
        title = f"{_capitalised(metric)} by length"
        caption = _OF_OTHERS if panels else _BY_LENGTH.format(ranges=ranges)
        panels.append(Panel(f"{metric}_by_length", title, caption, figure))
    if tasks:
        panels.append(Panel("steps", "Steps until the range is solved", _STEPS, steps_figure(tasks, styles)))
    return panels


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


# The matrix


class Cell(NamedTuple):
    """Cell of the matrix. shade: from 0, chance or less, to SHADES, everything right; None: not measured. seeds: the
    figure of each."""

    text: str
    shade: int | None = None
    seeds: str = ""


class Head(NamedTuple):
    """Columns of one task."""

    task: str
    lengths: list[str]  # "1× (32)"


class Matrix(NamedTuple):
    """First metric of some tasks, by scheme."""

    title: str
    heads: list[Head]
    rows: list[tuple[str, list[Cell]]]


def matrices(tasks: Sequence[TaskRuns]) -> list[Matrix]:
    """Return matrices of all tasks by all schemes, a few tasks in each."""
    labels = sorted({label for task in tasks for label in task.runs})
    metrics = ", ".join(dict.fromkeys(task.metric for task in tasks))
    title = f"{_capitalised(metrics)} by task and length"
    parts = [tasks[start : start + _A_TABLE] for start in range(0, len(tasks), _A_TABLE)]
    return [
        Matrix(title, [_head(task) for task in part], [(label, _cells(part, label)) for label in labels])
        for part in parts
    ]


def _head(task: TaskRuns) -> Head:
    return Head(task.name, [f"{task.multiple(n)} ({n})" for n in task.shown_lengths(task.metric)])


def _cells(tasks: Sequence[TaskRuns], label: str) -> list[Cell]:
    return [_cell(task, label, length) for task in tasks for length in task.shown_lengths(task.metric)]


def _cell(task: TaskRuns, label: str, length: int) -> Cell:
    metric = task.measures[0]
    values = task.values(label, metric.name, length) if label in task.runs else []
    if not values:
        return Cell("")
    mean, chance = fmean(values), task.chance(metric.name).get(length, 0.0)
    above = max(0.0, (mean - chance) / (1 - chance)) if metric.is_proportion and chance < 1 else 0.0
    seeds = ", ".join(f"{value:.3f}" for value in values)
    return Cell(f"{mean:.2f}", round(SHADES * above), f"{label}, {task.name} at {length}: {seeds} (each seed)")


# One task


def solved_table(task: TaskRuns) -> Table:
    """Return the table of which seeds solve a task's training range, when, and what they reach beyond."""
    metric = task.measures[0]
    lengths = task.shown_lengths(metric.name)
    beyond = [n for n in lengths if n > task.trained[1]]
    columns = ["scheme", "solved", "steps until then"]
    for n in lengths:
        columns += [f"{metric.name} at {n}, all seeds", *([f"at {n}, those that solved"] if n in beyond else [])]
    rows = []
    for label in task.runs:
        steps = [f"{step:,}" for step in sorted(step for step in task.solved_steps(label) if step is not None)]
        never = len(task.solved_steps(label)) - len(steps)
        row = [label, task.solved([label]), ", ".join([*steps, *([f"never: {never}"] if never else [])])]
        for n in lengths:
            row.append(_mean(task.values(label, metric.name, n)))
            if n in beyond:
                solved = task.values(label, metric.name, n, solved=True)
                row.append(f"{_mean(solved)} (n = {len(solved)})" if solved else "n/a")
        rows.append(row)
    return Table("Who solves the range", columns, rows, _SOLVED, "schemes")


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" if values else "n/a"


class TaskReport(NamedTuple):
    """Tables and texts of the report on one task, beside figures."""

    runs: TaskRuns
    table: Table
    wrong: list[WrongAtLength]


def task_report(task: TaskRuns) -> tuple[TaskReport, list[str]]:
    """Return (the report of one task, notes on what is missing)."""
    wrong, notes = wrong_by_length(task)
    return TaskReport(task, solved_table(task), wrong), notes
