"""Report on tasks: figures and a matrix over all, and for each task which schemes solve it, and errors."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from poslab.comparison.compare import Comparison
from poslab.comparison.error_analysis import wrong_by_length
from poslab.comparison.figures import styles_of
from poslab.comparison.task_figures import MOST_RANGES, by_length_figure, steps_figure
from poslab.comparison.tasks import TaskRuns
from poslab.config.schemes import is_task
from poslab.report import blocks
from poslab.report.blocks import DARKEST, Cell, Details, Table

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


_MATRIX = "Means over all seeds, also those that never solved the range. results.csv has the figures of each run."
_SHADES = (
    "A cell under the mouse says what each seed got. White is chance or less, dark is everything right. A scheme's row "
    "is expected to grow paler from left to right within a task; what is darker beyond 1× would be a surprise."
)


def task_runs(title: str, comparison: Comparison) -> TaskRuns | None:
    """Return the compared runs as those of a task, or None if they are of a text, or have no metric by length."""
    task = TaskRuns(title, {group.label: group.runs for group in comparison.groups})
    return task if is_task(task.first.config["data"]) and task.measures else None


def task_panels(tasks: Sequence[TaskRuns], baseline: str) -> list[blocks.Figure]:
    """Return figures with a panel for each task."""
    labels = {label for task in tasks for label in task.runs}
    styles = styles_of(labels, baseline if baseline in labels else None)
    ranges = _RANGES if len(labels) <= MOST_RANGES else ""
    panels: list[blocks.Figure] = []
    for metric in dict.fromkeys(measure.name for task in tasks for measure in task.measures):
        having = [task for task in tasks if task.lengths(metric)]
        figure = by_length_figure(having, metric, styles)
        title = f"{_capitalised(metric)} by length"
        caption = _OF_OTHERS if panels else _BY_LENGTH.format(ranges=ranges)
        panels.append(blocks.Figure(f"{metric}_by_length", title, caption, figure))
    if tasks:
        panels.append(blocks.Figure("steps", "Steps until the range is solved", _STEPS, steps_figure(tasks, styles)))
    return panels


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


# The matrix


def matrices(tasks: Sequence[TaskRuns]) -> list[Table]:
    """Return matrices of all tasks by all schemes, a few tasks in each; the first has the title, the last the note."""
    labels = sorted({label for task in tasks for label in task.runs})
    metrics = ", ".join(dict.fromkeys(task.metric for task in tasks))
    parts = [tasks[start : start + _A_TABLE] for start in range(0, len(tasks), _A_TABLE)]
    tables = [_matrix(part, labels) for part in parts]
    tables[0] = replace(tables[0], title=f"{_capitalised(metrics)} by task and length")
    tables[-1] = replace(tables[-1], note=_MATRIX, hint=_SHADES)
    return tables


def _matrix(tasks: Sequence[TaskRuns], labels: Sequence[str]) -> Table:
    lengths = {task.name: [f"{task.multiple(n)} ({n})" for n in task.shown_lengths(task.metric)] for task in tasks}
    columns = ["scheme", *(name for of_task in lengths.values() for name in of_task)]
    groups = [(name, len(of_task)) for name, of_task in lengths.items()]
    rows = [[label, *_cells(tasks, label)] for label in labels]
    return Table("", columns, rows, kind="matrix", sortable=True, groups=groups)


def _cells(tasks: Sequence[TaskRuns], label: str) -> list[str | Cell]:
    return [_cell(task, label, length) for task in tasks for length in task.shown_lengths(task.metric)]


def _cell(task: TaskRuns, label: str, length: int) -> str | Cell:
    metric = task.measures[0]
    values = task.values(label, metric.name, length) if label in task.runs else []
    if not values:
        return ""
    mean, chance = fmean(values), task.chance(metric.name).get(length, 0.0)
    above = max(0.0, (mean - chance) / (1 - chance)) if metric.is_proportion and chance < 1 else 0.0
    seeds = ", ".join(f"{value:.3f}" for value in values)
    tooltip = f"{label}, {task.name} at {length}: {seeds} (each seed)"
    return Cell(f"{mean:.2f}", tooltip, shade=round(DARKEST * above))  # from chance to everything right


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
    return Table("Who solves the range", columns, rows, _SOLVED, sortable=True)


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" if values else "n/a"


class TaskReport(NamedTuple):
    """Tables and texts of the report on one task, beside figures."""

    runs: TaskRuns
    table: Table
    wrong: list[Details]


def task_report(task: TaskRuns) -> tuple[TaskReport, list[str]]:
    """Return (the report of one task, notes on what is missing)."""
    wrong, notes = wrong_by_length(task)
    return TaskReport(task, solved_table(task), wrong), notes
