"""What a report says of tasks, from fabricated runs whose figures are known."""

import re
from pathlib import Path

import pandas as pd
import pytest
from runs_to_compare import (
    ANSWER,
    TASK_STEPS,
    compare_folders,
    page_in,
    report_of,
    runs_by_group,
    write_task_run,
    wrong_answer,
)

from poslab.comparison.solving import solved_table
from poslab.comparison.task_figures import by_length_panels, steps_panels, task_panels
from poslab.comparison.task_report import errors_of, matrices
from poslab.comparison.tasks import TaskRuns, task_runs
from poslab.runs.error_examples import WrongAnswer
from poslab.runs.load import read_runs
from seedstats.figures import styles_of
from seedstats.page.blocks import Cell, Code, Details, Text


def task_in(root: Path) -> TaskRuns:
    task = task_runs("copy", runs_by_group(root))
    assert task is not None
    return task


def wrong_in(root: Path) -> tuple[list[Details], list[str]]:
    (whole,), notes = errors_of(task_in(root))
    return whole.blocks[1:], notes


def text_of(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


@pytest.fixture
def copy_runs(tmp_path: Path) -> Path:
    """Two schemes: one solves the range with one seed of three, and the other with none."""
    for seed, (share, step) in enumerate([(1.0, 250), (0.6, None), (0.2, None)], start=1):
        write_task_run(tmp_path, "shaw", seed, {10: share, 20: share / 2}, step, answers={20: [wrong_answer(3)]})
        write_task_run(
            tmp_path, "absolute", seed, {10: 0.1, 20: 0.0}, answers={10: [wrong_answer(1)], 20: [wrong_answer(3)]}
        )
    return tmp_path


def test_figures_are_over_all_seeds_and_those_that_solve_stand_beside_them(copy_runs: Path) -> None:
    task = task_in(copy_runs)
    assert list(task.runs) == ["shaw", "absolute"]
    assert task.values("shaw", "exact", 20) == [0.5, 0.3, 0.1]
    table = solved_table(compare_folders(copy_runs))
    columns = ["", "solved", "steps until then", "exact at 20, all seeds"]
    assert table.columns == [*columns, "those that solved"]
    shaw = ["shaw", "1 of 3 [1 % to 91 %]", "250, never: 2", "0.300", "0.500 (n = 1)"]
    assert table.rows == [shaw, ["absolute", "0 of 3 [0 % to 71 %]", "never: 3", "0.000", "n/a"]]
    assert (task.solved(), task.trained, task.multiple(15)) == ("1 of 6", (2, 10), "1.5×")


def test_a_seed_that_diverged_has_not_solved_the_task(copy_runs: Path) -> None:
    folder = write_task_run(copy_runs, "shaw", 4, {10: 1.0, 20: 0.5}, last_val_loss=None)
    (folder / "summary.json").rename(folder / "diverged.json")
    _, shaw = solved_table(compare_folders(copy_runs)).rows
    assert shaw[1:3] == ["1 of 4 [1 % to 81 %]", "250, never: 3"]
    assert shaw[3:] == ["0.300 (1 diverged)", "0.500 (n = 1)"]
    one = compare_folders(copy_runs)
    task = task_runs("copy", runs_by_group(copy_runs), {group.label: len(group.diverged) for group in one.groups})
    assert task is not None
    assert (task.solved(["shaw"]), task.solved()) == ("1 of 4", "1 of 7")


def test_matrix_has_means_and_shades_from_chance_to_all(copy_runs: Path) -> None:
    write_task_run(copy_runs, "shaw", 1, {10: 1.0, 20: 0.6}, data="sort")
    tasks = [TaskRuns(name, {"shaw": read_runs([str(copy_runs / name)])[0]}) for name in ("copy", "sort")]
    tasks[0] = task_in(copy_runs / "copy")
    (matrix,) = matrices(tasks)
    assert matrix.headings == [("copy", 2), ("sort", 2)]
    assert matrix.columns == ["", *["1× (10)", "2× (20)"] * 2]
    shades = [[(cell.text, cell.shade) if isinstance(cell, Cell) else cell for cell in row] for row in matrix.rows]
    assert shades == [
        ["absolute", ("0.10", 0), ("0.00", 0), "", ""],
        ["shaw", ("0.60", 5), ("0.30", 1), ("1.00", 10), ("0.60", 5)],
    ]
    assert matrix.rows[1][2].tooltip == "shaw, copy at 20: 0.500, 0.300, 0.100 (each seed)"


def test_of_many_lengths_tables_show_those_at_one_two_and_three_times(tmp_path: Path) -> None:
    write_task_run(tmp_path, "shaw", 1, dict.fromkeys((5, 10, 15, 21, 28, 40), 0.5))
    task = task_in(tmp_path)
    assert task.lengths("exact") == [5, 10, 15, 21, 28, 40]
    assert task.shown_lengths == [10, 21, 28]


def test_many_tasks_make_several_tables(tmp_path: Path) -> None:
    write_task_run(tmp_path, "shaw", 1, {10: 0.5})
    runs = task_in(tmp_path).runs
    first, second = matrices([TaskRuns(str(n), runs) for n in range(8)])
    assert (len(first.headings), len(second.headings)) == (6, 2)
    assert (bool(first.title), bool(second.title), bool(first.note), bool(second.note)) == (True, False, False, True)


def test_one_test_is_shown_that_most_schemes_get_wrong_answer(tmp_path: Path) -> None:
    answers = {
        "absolute": [wrong_answer(0), wrong_answer(7)],
        "shaw": [wrong_answer(7, "b", "b", "c")],
        "t5": [wrong_answer(9)],
        "nope": [],
    }
    for pos, of_scheme in answers.items():
        write_task_run(tmp_path, pos, 1, {10: 1.0, 20: 0.4}, answers={20: of_scheme})
    wrong, notes = wrong_in(tmp_path)
    assert notes == []
    in_range, beyond = wrong
    assert (in_range.open, beyond.open) == (False, True)
    assert in_range.blocks == [Text("Nothing wrong in the first 32 tests: absolute, nope, shaw, t5.")]
    assert beyond.summary == "length 20, 2×: 3 of 4 schemes get something wrong"
    title, line, first, second_title, _, second, remark = beyond.blocks
    assert title == Text("test 8, all that is read:")
    assert second_title == Text("test 10, all that is read:")
    assert remark == Text("Nothing wrong in the first 32 tests: nope.")
    assert line == Code("BOS a b c SEP a b")
    assert first.columns == ["has just read", "SEP", "a", "b", "wrong"]
    assert first.rows[0] == ["right", *ANSWER, ""]
    assert [("".join(map(text_of, row)), [cell.marked for cell in row[1:-1]]) for row in first.rows[1:]] == [
        ("absoluteabx1 of 3", [False, False, True]),
        ("nopeabc0 of 3", [False] * 3),
        ("shawbbc1 of 3", [True, False, False]),
        ("t5abc0 of 3", [False] * 3),
    ]
    assert [text_of(row[0]) for row in second.rows] == ["right", "t5"]


def test_the_run_of_the_median_figure_answers(tmp_path: Path) -> None:
    for seed, share in ((1, 0.9), (2, 0.1), (3, 0.5)):
        write_task_run(tmp_path, "shaw", seed, {10: share}, answers={10: [wrong_answer(seed)]})
    wrong, _ = wrong_in(tmp_path)
    title, _, table = wrong[0].blocks
    assert title == Text("test 4, all that is read:")
    assert table.rows[1][0] == Cell("shaw", "seed 3")


def test_a_long_answer_is_shown_from_shortly_before_its_first_error(tmp_path: Path) -> None:
    symbols = [f"s{n}" for n in range(100)]
    said = [*symbols[:60], "x", *symbols[61:]]
    answer = WrongAnswer(0, symbols, list(range(100)), symbols, said)
    write_task_run(tmp_path, "shaw", 1, {10: 0.0}, answers={10: [answer]})
    wrong, _ = wrong_in(tmp_path)
    title, line, table = wrong[0].blocks
    assert title == Text("test 1, answers 57 to 80 of 100, all that is read:")
    assert [text_of(cell) for cell in table.rows[1]].count("x") == 1
    assert line == Code(" ".join(symbols))


def test_what_can_not_be_read_is_a_note(copy_runs: Path) -> None:
    (copy_runs / "copy" / "shaw-seed2" / "answers.json").write_text("{")
    for seed in (1, 2, 3):
        (copy_runs / "copy" / f"absolute-seed{seed}" / "answers.json").unlink()
    wrong, notes = wrong_in(copy_runs)
    assert len(notes) == 2
    assert re.search(r"shaw-seed2 shows nothing that came out wrong: answers\.json can't be read", notes[0] + notes[1])
    assert any(note.endswith("it has no answers.json") for note in notes)
    assert wrong == []


def test_curves_are_means_with_chance_and_the_training_range(copy_runs: Path) -> None:
    task = task_in(copy_runs)
    styles = styles_of(task.runs, "absolute")
    (axes,) = (panel.axes[0] for panel in by_length_panels([task], "exact", styles))
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["shaw"].get_ydata().tolist() == pytest.approx([0.6, 0.3])
    assert [round(x) for x in lines["shaw"].get_xdata()] != [10, 20]  # beside each other
    assert set(lines["chance"].get_ydata()) == {0.2}
    (shaded,) = (patch for patch in axes.patches if patch.get_label() == "lengths of training")
    assert shaded.get_x() <= 10 <= shaded.get_x() + shaded.get_width() < 20
    (of_shaw,) = (c for c in axes.collections if c.get_segments()[0][0][1] == 0.2)
    assert [segment[:, 1].tolist() for segment in of_shaw.get_segments()] == [[0.2, 1.0], [0.1, 0.5]]  # worst, best
    assert "solved by 1 of 6 runs" in axes.get_title("left")


def test_lengths_far_apart_stand_on_a_logarithmic_axis(tmp_path: Path) -> None:
    write_task_run(tmp_path, "shaw", 1, dict.fromkeys((2, 10, 31), 0.5))
    write_task_run(tmp_path / "wide", "shaw", 1, dict.fromkeys((2, 10, 32), 0.5))
    for folder, scale in ((tmp_path, "linear"), (tmp_path / "wide", "log")):
        task = task_in(folder)
        (axes,) = (panel.axes[0] for panel in by_length_panels([task], "exact", styles_of(task.runs)))
        assert axes.get_xscale() == scale
        assert axes.get_xticks().tolist() == task.lengths("exact")  # and no others
        assert not len(axes.get_xticks(minor=True))


def test_each_seed_stands_at_its_step_or_at_never(copy_runs: Path) -> None:
    task = task_in(copy_runs)
    (axes,) = (panel.axes[0] for panel in steps_panels([task], styles_of(task.runs)))
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert [len(line.get_xdata()) for line in crosses] == [3, 2]
    assert all(x > TASK_STEPS for line in crosses for x in line.get_xdata())
    assert [list(line.get_xdata()) for line in axes.get_lines() if line.get_marker() != "x"] == [[], [250]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["absolute  0 of 3", "shaw  1 of 3"]


@pytest.mark.parametrize(("schemes", "tasks"), [(8, 1), (20, 4)])
def test_panels_for_few_and_many(schemes: int, tasks: int, tmp_path: Path) -> None:
    (run,) = read_runs([str(write_task_run(tmp_path, "shaw", 1, {10: 1.0, 20: 0.5}, 250))])[0]
    runs = {f"scheme{n}": [run] for n in range(schemes)}
    panels = task_panels([TaskRuns(f"task{n}", runs) for n in range(tasks)], "scheme0")
    assert [panel.name for panel in panels] == ["exact_by_length", "accuracy_by_length", "steps"]
    assert [len([a for p in figure.panels for a in p.axes if a.axison]) for figure in panels] == [tasks] * 3
    assert ("from the worst" in panels[0].caption) == (schemes <= 10)


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_a_report_of_several_tasks(copy_runs: Path) -> None:
    html = (report_of(copy_runs) / "report.html").read_text()
    assert "by task and length" not in html  # of one task
    assert html.index("Who solves the range") < html.index("What comes out wrong") < html.index('id="exact_by_length"')
    write_task_run(copy_runs, "shaw", 1, {10: 1.0, 20: 0.6}, 500, data="sort")
    folder = report_of(copy_runs)
    html, markdown = ((folder / f"report.{kind}").read_text() for kind in ("html", "md"))
    assert "by task and length" in html
    assert html.count("What comes out wrong") == 2
    assert ["shaw", "1 of 3 [1 % to 91 %]", "250, never: 2", "0.300", "0.500 (n = 1)"] in page_in(folder).rows
    assert "| shaw | 0.60 | 0.30 | 1.00 | 0.60 |" in markdown
    assert "| has just read | SEP | a | b | wrong |" in markdown
    assert (folder / "figures" / "exact_by_length.svg").exists()
    rows = pd.read_csv(folder / "results.csv").query("name == 'shaw' and data == 'copy' and length != 10")
    figures = rows.groupby("metric")["value"].agg(list)
    assert figures["exact"] == [0.5, 0.3, 0.1]
    assert figures["solved"] == [1, 0, 0]
    assert figures["steps_to_solve"] == [250, 500, 500]
