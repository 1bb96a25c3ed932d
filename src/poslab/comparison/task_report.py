"""Report on tasks: a matrix over all; for each task which seeds solve it, and an error analysis.

The latter shows for each length the fewest tests that have an error of every scheme, each represented by the run of its
median figure at that length, all on the same tests where possible.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from poslab.comparison.tasks import TaskRuns
from poslab.runs.error_examples import LOOKED_AT, WrongAnswer, read_wrong_answers
from seedstats.page.blocks import DARKEST, Block, Cell, Code, Details, Heading, Row, Table, Text

_A_TABLE = 6  # tasks side by side
_MATRIX = "Means over all seeds, also those that never solved the range. results.csv has the figures of each run."
_SHADES = (
    "A cell under the mouse says what each seed got. White is chance or less, dark is everything right. A scheme's row "
    "is expected to grow paler from left to right within a task; what is darker beyond 1× would be a surprise."
)
_MOST_TESTS = 3  # shown of each length
_WIDTH = 96  # characters of a row of answers, with a space after each
_BEFORE = 4  # answers that are shown before the first wrong one


def matrices(tasks: Sequence[TaskRuns]) -> list[Table]:
    """Return matrices of all tasks by all schemes, a few tasks in each; the first has the title, the last the note."""
    labels = sorted({label for task in tasks for label in task.runs})
    metrics = ", ".join(dict.fromkeys(task.measures[0].name for task in tasks))
    tables = [_matrix(tasks[start : start + _A_TABLE], labels) for start in range(0, len(tasks), _A_TABLE)]
    tables[0] = replace(tables[0], title=f"{metrics[0].upper()}{metrics[1:]} by task and length")
    tables[-1] = replace(tables[-1], note=_MATRIX, hint=_SHADES)
    return tables


def _matrix(tasks: Sequence[TaskRuns], labels: Sequence[str]) -> Table:
    each = [(task, n) for task in tasks for n in task.shown_lengths]
    columns = ["", *(f"{task.multiple(n)} ({n})" for task, n in each)]
    rows: list[Row] = [[label, *(_cell(task, label, n) for task, n in each)] for label in labels]
    headings = [(task.name, len(task.shown_lengths)) for task in tasks]
    return Table("", columns, rows, sortable=True, headings=headings)


def _cell(task: TaskRuns, label: str, length: int) -> str | Cell:
    metric = task.measures[0]
    values = task.values(label, metric.name, length)
    if not values:
        return ""
    mean, chance = fmean(values), task.chance(metric.name).get(length, 0.0)
    above = max(0.0, (mean - chance) / (1 - chance)) if metric.is_proportion and chance < 1 else 0.0
    tooltip = f"{label}, {task.name} at {length}: {', '.join(f'{value:.3f}' for value in values)} (each seed)"
    return Cell(f"{mean:.2f}", tooltip, shade=round(DARKEST * above))  # from chance to everything right


# Errors

Answers = Mapping[str, WrongAnswer]  # to one test, by label and in the order of the report


_WRONG = (
    "Each scheme answers in the run of its median value at that length, all on the same test: the first one that most "
    "of them get wrong. Where a scheme gets that right, a further test shows it wrong. Having read a symbol of the "
    "first row, it says the one below."
)


def errors_of(task: TaskRuns) -> tuple[list[Block], list[str]]:
    """Return (what comes out wrong at each length, notes on runs whose answers are not available)."""
    wrong, notes = _wrong_by_length(task)
    return [Heading("What comes out wrong", [Text(_WRONG), *wrong])], notes


def _wrong_by_length(task: TaskRuns) -> tuple[list[Details], list[str]]:
    """Return (the tests with errors at each length, all but one of them folded away, notes on runs whose answers are
    not available)."""
    lengths = task.lengths(task.measures[0].name)
    medians = {n: {label: task.median_run(label, n) for label in task.runs} for n in lengths}
    read: dict[Path, dict[str, list[WrongAnswer]]] = {}
    notes = []
    for folder in dict.fromkeys(run.folder for runs in medians.values() for run in runs.values()):
        try:
            read[folder] = read_wrong_answers(folder)
        except ValueError as error:
            notes.append(f"{folder} shows nothing that came out wrong: {error}")
    wrong: dict[int, dict[str, list[WrongAnswer]]] = {}
    for n, runs in medians.items():
        tested = {label: read.get(run.folder, {}).get(str(n)) for label, run in runs.items()}
        if answers_by_label := {label: answers for label, answers in tested.items() if answers is not None}:
            wrong[n] = answers_by_label
    beyond = [n for n, answers_by_label in wrong.items() if any(answers_by_label.values()) and n > task.trained[1]]
    opened = min(beyond, default=max(wrong, default=0))
    by_length = []
    for n, answers_at_length in wrong.items():
        tests, left = _chosen(answers_at_length)
        seeds = {label: run.seed for label, run in medians[n].items()}
        without = [label for label, answers in answers_at_length.items() if not answers]
        counts = f"{len(task.runs) - len(without)} of {len(task.runs)} schemes get something wrong"
        shown = [block for answers in tests for block in _test(answers, seeds)]
        if without:
            shown.append(Text(f"Nothing wrong in the first {LOOKED_AT} tests: {', '.join(without)}."))
        if left:
            shown.append(Text(f"Wrong in yet other tests: {', '.join(left)}."))
        by_length.append(Details(f"length {n}, {task.multiple(n)}: {counts}", shown, open=n == opened))
    return by_length, notes


def _chosen(wrong: Mapping[str, Sequence[WrongAnswer]]) -> tuple[list[Answers], list[str]]:
    """Return (the answers to the fewest tests that show an error of each scheme, within the space available; the other
    schemes).

    wrong: by label. All schemes answer the first test.
    """
    # The same number is another test where the task's settings are others.
    said: dict[tuple[int, tuple[str, ...], tuple[str, ...]], dict[str, WrongAnswer]] = defaultdict(dict)
    for label, answers in wrong.items():
        for answer in answers:
            said[answer.number, tuple(answer.reads), tuple(answer.right)][label] = answer
    tests: list[Answers] = []
    left = {label for label, answers in wrong.items() if answers}
    while left and len(tests) < _MOST_TESTS:
        test_answers = said[min(said, key=lambda key: (-len(said[key].keys() & left), key))]
        asked = next(iter(test_answers.values()))
        shown = left & test_answers.keys() if tests else wrong.keys()
        tests.append(
            {label: test_answers.get(label, replace(asked, said=asked.right)) for label in wrong if label in shown}
        )
        left -= test_answers.keys()
    return tests, [label for label in wrong if label in left]


def _test(answers: Answers, seeds: Mapping[str, int]) -> list[Block]:
    """Return a test as the page shows it: its whole input, and the answers below the right ones, errors marked.

    seeds: of the runs that gave them, by label.
    """
    test, shown = next(iter(answers.values())), _shown(answers)
    rows: list[Row] = [["right", *(test.right[n] for n in shown), ""]]
    for label, answer in answers.items():
        said = [Cell(answer.said[n], marked=n in answer.errors) for n in shown]
        rows.append([Cell(label, f"seed {seeds[label]}"), *said, f"{len(answer.errors)} of {len(answer.right)}"])
    count = len(test.right)
    part = f", answers {shown[0] + 1} to {shown[-1] + 1} of {count}" if len(shown) < count else ""
    columns = ["has just read", *(test.reads[test.places[n]] for n in shown), "wrong"]
    return [
        Text(f"test {test.number + 1}{part}, all that is read:"),
        Code(" ".join(test.reads)),
        Table("", columns, rows, kind="symbols"),
    ]


def _shown(answers: Answers) -> range:
    """Return the range of answers shown, from shortly before the first error; all, if they fit."""
    right = next(iter(answers.values())).right
    columns = zip(right, *(answer.said for answer in answers.values()), strict=True)
    widths = [1 + max(map(len, words)) for words in columns]
    if sum(widths) <= _WIDTH:
        return range(len(widths))
    start = max(0, min(answer.errors[0] for answer in answers.values() if answer.errors) - _BEFORE)
    fitting = sum(width <= _WIDTH for width in accumulate(widths[start:]))
    return range(start, start + max(1, fitting))  # one, however long its symbol
