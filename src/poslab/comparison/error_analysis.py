"""Error analysis of a task: for each length the fewest tests that show an error of every scheme.

Each scheme is represented by the run of its median figure at that length, all on the same tests where possible.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from poslab.comparison.tasks import TaskRuns
from poslab.report.blocks import Block, Cell, Code, Details, Row, Table, Text
from poslab.runs.error_examples import LOOKED_AT, WrongAnswer, WrongAnswers

_MOST_TESTS = 3  # shown of each length
_WIDTH = 96  # characters of a row of answers, with a space after each
_BEFORE = 4  # answers that are shown before the first wrong one


@dataclass(frozen=True)
class WrongTest:
    """Test example as a page shows it. answers: by label, in the order of the report. seeds: of the runs that gave
    them."""

    answers: Mapping[str, WrongAnswer]
    seeds: Mapping[str, int]

    @property
    def asked(self) -> WrongAnswer:
        return next(iter(self.answers.values()))

    @cached_property
    def places(self) -> range:
        """Return the range of answers shown, from shortly before the first error; all, if they fit."""
        columns = zip(self.asked.right, *(answer.said for answer in self.answers.values()), strict=True)
        widths = [1 + max(map(len, words)) for words in columns]
        if sum(widths) <= _WIDTH:
            return range(len(widths))
        start = max(0, min(answer.errors[0] for answer in self.answers.values() if answer.errors) - _BEFORE)
        return range(start, start + sum(1 for width in accumulate(widths[start:]) if width <= _WIDTH))

    @property
    def title(self) -> str:
        places, count = self.places, len(self.asked.right)
        part = f", answers {places[0] + 1} to {places[-1] + 1} of {count}" if len(places) < count else ""
        return f"test {self.asked.number + 1}{part}"

    @property
    def blocks(self) -> list[Block]:
        """Return the whole input, and the answers."""
        return [Text(f"{self.title}, all that is read:"), Code(" ".join(self.asked.reads)), self.table]

    @property
    def table(self) -> Table:
        """Return the answers of the schemes below the right ones, errors marked."""
        rows: list[Row] = [["right", *(self.asked.right[n] for n in self.places), ""]]
        for label, answer in self.answers.items():
            said = [Cell(answer.said[n], marked=n in answer.errors) for n in self.places]
            count = f"{len(answer.errors)} of {len(answer.right)}"
            rows.append([Cell(label, f"seed {self.seeds[label]}"), *said, count])
        reads = [self.asked.reads[self.asked.places[n]] for n in self.places]
        return Table("", ["has just read", *reads, "wrong"], rows, kind="answers")


def wrong_by_length(task: TaskRuns) -> tuple[list[Details], list[str]]:
    """Return (the tests with errors at each length, all but one of them folded away, notes on runs whose answers are
    not available)."""
    medians = {n: {label: task.median_run(label, n) for label in task.runs} for n in task.lengths(task.metric)}
    read: dict[Path, WrongAnswers] = {}
    notes = []
    for folder in dict.fromkeys(run.folder for runs in medians.values() for run in runs.values()):
        try:
            read[folder] = WrongAnswers.read(folder)
        except ValueError as error:
            notes.append(f"{folder} shows nothing that came out wrong: {error}")
    wrong: dict[int, Mapping[str, Sequence[WrongAnswer]]] = {}
    for length, runs in medians.items():
        tested = {label: read[run.folder].wrong.get(str(length)) for label, run in runs.items() if run.folder in read}
        if known := {label: answers for label, answers in tested.items() if answers is not None}:
            wrong[length] = known
    beyond = [length for length, known in wrong.items() if any(known.values()) and length > task.trained[1]]
    opened = min(beyond, default=max(wrong, default=0))
    found = []
    for length, of_length in wrong.items():
        tests, left = _chosen(of_length)
        seeds = {label: run.seed for label, run in medians[length].items()}
        without = [label for label, answers in of_length.items() if not answers]
        counts = f"{len(task.runs) - len(without)} of {len(task.runs)} schemes get something wrong"
        remarks = [f"Nothing wrong in the first {LOOKED_AT} tests: {', '.join(without)}"] if without else []
        remarks += [f"Wrong in yet other tests: {', '.join(left)}"] if left else []
        title = f"length {length}, {task.multiple(length)}: {counts}"
        shown = [block for answers in tests for block in WrongTest(answers, seeds).blocks]
        found.append(Details(title, [*shown, *(Text(f"{remark}.") for remark in remarks)], open=length == opened))
    return found, notes


def _chosen(wrong: Mapping[str, Sequence[WrongAnswer]]) -> tuple[list[dict[str, WrongAnswer]], list[str]]:
    """Return (the answers to the fewest tests that show an error of each scheme, within the space available; the other
    schemes).

    wrong, answers: by label. All schemes answer the first test.
    """
    # The same number is another test where the task's settings are others.
    said: dict[tuple[int, tuple[str, ...], tuple[str, ...]], dict[str, WrongAnswer]] = defaultdict(dict)
    for label, answers in wrong.items():
        for answer in answers:
            said[answer.number, tuple(answer.reads), tuple(answer.right)][label] = answer
    tests: list[dict[str, WrongAnswer]] = []
    left = {label for label, answers in wrong.items() if answers}
    while left and len(tests) < _MOST_TESTS:
        of_test = said[min(said, key=lambda key: (-len(said[key].keys() & left), key))]
        asked = next(iter(of_test.values()))
        shown = left & of_test.keys() if tests else wrong.keys()
        tests.append({label: of_test.get(label, replace(asked, said=asked.right)) for label in wrong if label in shown})
        left -= of_test.keys()
    return tests, [label for label in wrong if label in left]
