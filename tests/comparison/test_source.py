"""Tables of results from a file: compared as the runs that they are of, and without run folders, or torch."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from common import REPOSITORY, RunScript, assert_refused
from runs_to_compare import (
    Page,
    change_config,
    change_summary,
    page_in,
    plan_of,
    set_scheme,
    write_run,
    write_sweep,
    write_task_run,
)

from poslab.runs.plan import add_to_plan

pytestmark = pytest.mark.usefixtures("no_figures", "blank_pictures")
Script = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def script(run_script: RunScript) -> Script:
    """scripts/compare.py."""
    return functools.partial(run_script, "compare")


def words(page: Page) -> list[str]:
    """Findings, caveats and verdicts, without what is left out and where it is."""
    return [line for of_list in page.lists for line in of_list if "left out" not in line]


def write_text(root: Path) -> None:
    """Three schemes, two of them alike."""
    write_sweep(root, absolute=0.0, shaw=0.0, t5=-0.1)


def write_grid(root: Path) -> None:
    rng = np.random.default_rng(2)
    for distance in (4, 16):
        for keys in (True, False):
            for seed in (1, 2, 3):
                loss = 4 + 0.1 * seed + 0.02 * distance + float(rng.normal(0, 0.005))
                set_scheme(write_run(root / f"{distance}{keys}", "shaw", seed, loss), max_distance=distance, keys=keys)


def write_tasks(root: Path) -> None:
    for data, better in (("copy", "shaw"), ("sort", "nope")):
        for pos in ("shaw", "nope"):
            for seed in range(1, 6):
                share = 0.9 - seed / 50 if pos == better else 0.1 + seed / 70
                write_task_run(root, pos, seed, {10: 1.0, 20: share, 40: share / 3}, data=data, answers={})
    claims = (
        "{better: shaw, than: nope, data: copy, length: 20}",
        "{name: all, at_least: 0.9, data: copy, length: 10}",
    )
    (root / "claims.yaml").write_text("\n".join(f"- {claim}" for claim in claims))


def write_survivors(root: Path) -> None:
    """One seed is missing, one diverged, a scheme has none left, and seeds were planned after a look."""
    write_sweep(root, seeds=6, absolute=0.0, shaw=-0.2, t5=-0.1, rope=0.3)
    (root / "report").mkdir()
    for most in (4, 6, 7):
        add_to_plan(root, plan_of(root, range(1, most + (1 if most < 7 else 0))))
        (root / "report" / "report.html").touch()
    change_summary(root / "shaw-seed2", last_val_loss=None)
    (root / "t5-seed3" / "summary.json").unlink()
    for seed in range(1, 7):
        change_summary(root / f"rope-seed{seed}", last_val_loss=None)


def write_caveats(root: Path) -> None:
    write_sweep(root, absolute=0.0, t5=-0.1)
    for folder in root.iterdir():
        change_config(folder, "early_stopping_patience", 2)
    change_summary(root / "t5-seed2", device="cuda:0")
    write_run(root / "again", "t5", 1, 9.0)
    change_config(root / "again" / "t5-seed1", "early_stopping_patience", 2)


@pytest.mark.parametrize("arguments", [[], ["pairs=all"]], ids=["baseline", "all pairs"])
@pytest.mark.parametrize("write", [write_text, write_grid, write_tasks, write_survivors, write_caveats])
def test_the_results_of_a_report_say_what_the_report_says(
    write: Callable[[Path], None], arguments: list[str], tmp_path: Path, script: Script
) -> None:
    write(tmp_path / "runs")
    if (file := tmp_path / "runs" / "claims.yaml").exists():
        arguments = [*arguments, f"claims={file}"]
    code, _, errors = script(f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'report'}", *arguments)
    assert code == 0, errors
    code, screen, errors = script(
        f"table={tmp_path / 'report' / 'results.csv'}", f"out={tmp_path / 'again'}", *arguments
    )
    assert code == 0, errors
    first, again = page_in(tmp_path / "report"), page_in(tmp_path / "again")
    answers = words(again)
    assert len(answers) > 1
    assert [line for line in words(first) if line in answers] == answers
    assert first.lists[0] == again.lists[0]
    assert first.headlines == again.headlines
    for line in [*again.lists[0], *again.headlines]:
        assert line in screen
    results = [tmp_path / name / "results.csv" for name in ("report", "again", "third")]
    assert len({pd.read_csv(file).shape for file in results[:2]}) == 1
    assert script(f"table={results[1]}", f"out={tmp_path / 'third'}", *arguments)[0] == 0
    assert results[2].read_text() == results[1].read_text()


def foreign(tmp_path: Path) -> Path:
    """A table with no more than it needs."""
    rng = np.random.default_rng(0)
    lines = ["scheme,seed,value"]
    for seed in range(1, 6):
        base = 4 + 0.1 * seed
        lines += [f"plain,{seed},{base}", f"mine,{seed},{base - 0.1 + rng.normal(0, 0.01)}"]
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_table_from_elsewhere(tmp_path: Path, script: Script) -> None:
    file = foreign(tmp_path)
    code, screen, _ = script(f"table={file}", "better=lower")
    assert code == 0
    folder = tmp_path / "mine-report"
    assert f"report  {folder / 'report.html'}" in screen
    assert [line[:39] for line in page_in(folder).headlines] == ["mine is best: better than plain by 0.10"]
    assert [line[:35] for line in page_in(folder).lists[0]] == ["mine is better than plain: 0.100 [0"]
    assert sorted(figure.name for figure in (folder / "figures").iterdir()) == ["results_1.svg", "results_2.svg"]
    assert script(f"table={file}", "better=higher")[1].count("- mine is worse than plain: 0.1") == 1
    assert script(f"table={file}", "better=lower", "baseline=mine")[1].count("- plain is worse than mine: 0.1") == 1


TWO = "scheme,seed,value,better\na,1,4.0,lower\nb,1,4.1,lower\n"


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        (None, "", "table={0}: can't be read: No such file"),
        ("scheme,seed,loss\na,1,4.0\n", "", "table={0}: has no column value; it has "),
        ("scheme,seed,value,t\na,1,4.0,8.1\na,2,4.1,8.2\nb,1,3.9,8.3\nb,2,4.0,8.4\n", "better=lower",
         "table={0}: column t: nearly every row has"),
        ("scheme,seed,value\na,1,nan\nb,1,\n", "better=lower", "no finished run to compare"),
        ("scheme,seed,value\na,1,4.0\n", "", "better=: must be lower or higher, as in better=lower: which"),
        (TWO, "better=higher", "better=higher: the table's column better says otherwise of "),
        (TWO + "c,1,4.1,higher", "",
         "table={0}: row 4, column better: 'higher' is another one than in an earlier row"),
        (TWO, "runs=elsewhere", "runs=elsewhere: goes without table, which is compared in their place"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_and_nothing_is_written(
    text: str | None, settings: str, problem: str, tmp_path: Path, script: Script
) -> None:
    file = tmp_path / "bad.csv"
    if text is not None:
        file.write_text(text)
    assert_refused(script(f"table={file}", *settings.split()), problem.format(file))
    assert not (tmp_path / "bad-report").exists()


def test_no_torch_is_loaded(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    program = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "assert 'torch' not in sys.modules, sorted(name for name in sys.modules if 'torch' in name)[:5]"
    )
    arguments = [str(REPOSITORY / "scripts" / "compare.py"), f"table={file}", "better=lower"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine is best: better than plain by 0.1" in done.stdout


def test_a_typed_direction_is_in_the_published_table(tmp_path: Path, script: Script) -> None:
    """And a separator of another kind, names with dots, and metrics named as poslab's own are no hindrance."""
    rows = [f"{name};{seed};solved;{value}" for name, value in (("a", 1), ("b", 0)) for seed in range(1, 9)]
    file = tmp_path / "lr0.1.csv"
    file.write_text("\n".join(["scheme;seed;metric;value", *rows]))
    _, first, _ = script(f"table={file}", "better=higher")
    assert "- b is worse than a: 1.00 of all" in first
    _, again, _ = script(f"table={tmp_path / 'lr0.1-report' / 'results.csv'}")
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
