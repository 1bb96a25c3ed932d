"""python -m seedstats, and what importing seedstats loads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seedstats.__main__ import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table with no more than it needs: mine is better by 0.1."""
    generator = np.random.default_rng(0)
    lines = ["name,seed,value"]
    for seed in range(1, 6):
        base = 4 + 0.1 * seed
        lines += [f"plain,{seed},{base:.3f}", f"mine,{seed},{base - 0.1 + generator.normal(0, 0.01):.4f}"]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    return tmp_path / "mine.csv"


def test_a_table_becomes_answers_and_a_page(file: Path, run: Run) -> None:
    code, screen, errors = run(file, "better=lower")
    assert (code, errors) == (0, "")
    folder = file.with_name("mine-report")
    first, *_, last = screen.splitlines()
    assert first.startswith("mine is best: better than plain by 0.100")
    assert last == f"report  {folder / 'report.html'}"
    assert {path.name for path in folder.iterdir()} == {"report.html", "report.md", "results.csv", "figures"}
    assert f"python -m seedstats {file} better=lower" in (folder / "report.md").read_text()
    assert run(file, "better=higher", f"out={folder.with_name('other')}")[1].startswith(
        "plain is best: better than mine by 0.100"
    )
    assert (folder.with_name("other") / "report.html").exists()
    assert "- plain is worse than mine: 0.100" in run(file, "better=lower", "baseline=mine")[1]
    once, twice = (run(file, "better=lower", f"looks={looks}")[1] for looks in (1, 2))
    assert once != twice
    assert run(file, "better=lower", "effect=0.5")[1].startswith("mine is best, but by less than the 0.5 that matters")
    # A published table is in its own words, with the direction that was typed.
    assert run(folder / "results.csv")[1].splitlines()[:-1] == once.splitlines()[:-1]


def test_a_table_with_semicolons_and_decimal_commas_says_the_same(file: Path, run: Run) -> None:
    german = file.with_name("german.csv")
    german.write_text(file.read_text().replace(",", ";").replace(".", ","), encoding="utf-8-sig")
    assert run(german, "better=lower")[1].splitlines()[:-1] == run(file, "better=lower")[1].splitlines()[:-1]


def test_columns_of_other_names_and_several_metrics(file: Path, run: Run) -> None:
    table = pd.read_csv(file).rename(columns={"name": "Model", "seed": "Seed", "value": "loss"})
    table.assign(accuracy=1 - table["loss"] / 10, runtime=np.arange(10) / 7).to_csv(file, index=False)
    columns = ("name=Model", "seed=Seed", "value=loss,accuracy", "unit=unit")
    assert run(file, *columns[:3], "better=lower")[1].startswith("mine is best: better than plain by 0.100")
    accuracy = run(file, *columns[:3], "better=higher", "metric=accuracy")[1]
    assert accuracy.startswith("mine is best: better than plain by 0.010")
    assert "has no column unit; it has " in run(file, *columns, "better=lower")[2]


def test_claims_and_settings(file: Path, run: Run) -> None:
    table = pd.read_csv(file)
    table = pd.concat([table.assign(rate=1), table.assign(rate=2, value=table["value"] + 0.3)])
    table.to_csv(file, index=False)
    claims = file.with_name("claims.yaml")
    claims.write_text("- {better: mine rate=1, than: plain rate=1}\n")
    code, screen, _ = run(file, "better=lower", f"claims={claims}", "pairs=all")
    assert code == 0
    assert screen.startswith("- Shown: mine rate=1 better than plain rate=1 in value on results. ")
    assert "mine rate=1 is best" in screen
    assert (file.with_name("mine-report") / "figures" / "over_rate.svg").exists()


TWO = "name,seed,value,better\na,1,4.0,lower\nb,1,4.1,lower\n"


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        (None, "", "{file}: No such file or directory"),
        ("", "", "{file}: has no rows"),
        ("name,seed,loss\na,1,4.0\n", "",
         "{file}: has no column value; it has name, seed, loss "
         "(name=COLUMN, seed=COLUMN and value=COLUMN say which is meant; see --help)"),
        ("name,seed,value,t\na,1,4.0,8.1\na,2,4.1,8.2\nb,1,3.9,8.3\nb,2,4.0,8.4\n", "better=lower",
         "column t: nearly every row has a value of its own, so it can't be a setting; leave it out"),
        ("name,seed,value\na,1,nan\nb,1,\n", "better=lower",
         "no finished run to compare, but for seeds that diverged as well"),
        ("name,seed,value\na,1,4.0\n", "",
         "better: must be lower or higher, as in better=lower: which value is the better one?"),
        (TWO + "c,1,4.1,higher", "",
         "{file}: row 4, column better: 'higher' is another one than in an earlier row of the same metric"),
        (TWO, "baseline=c", "baseline=c: unknown; valid: a, b"),
        (TWO, "betre=lower", "betre=lower: unknown; did you mean better?"),
        (TWO, "xyz=lower", "xyz=lower: unknown; valid: better, baseline, effect, pairs, "
         "metric, length, chosen_by, looks, claims, out, target, sd, latex, name, seed, value, "
         "settings, data, unit, status"),
        (TWO, "target=nan", "target=nan: must be a finite number"),
        (TWO, "target=-inf", "target=-inf: must be a finite number"),
        (TWO, "better=more", "better=more: must be lower or higher"),
        (TWO, "effect=much", "effect=much: must be a number"),
        (TWO, "looks=0", "looks=0: must be a whole number above 0"),
        (TWO, "effect=nan", "effect=nan: must be a number above 0"),
        (TWO, "looks=1.5", "looks=1.5: must be a whole number"),
        ("name,seed,value,metric\na,1,4,loss\na,1,5,time\nb,1,4,loss\nb,1,5,time\n", "better=lower chosen_by=time",
         "chosen_by=time: the table doesn't say which is better, lower or higher"),
        (TWO, "claims={file}", "claims={file}: must be a list of claims, such as - {{better: NAME, than: NAME}}"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_and_nothing_is_written(
    text: str | None, settings: str, problem: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "bad.csv"
    if text is not None:
        file.write_text(text)
    assert run(file, *settings.format(file=file).split()) == (2, "", f"error: {problem.format(file=file)}\n")
    assert not (tmp_path / "bad-report").exists()


def test_a_reader_that_closes_the_pipe_ends_it_quietly(file: Path) -> None:
    program = [sys.executable, "-m", "seedstats", str(file), "better=lower"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)
    assert (file.with_name("mine-report") / "report.html").exists()


def test_without_files_it_says_how_it_is_used(run: Run) -> None:
    for arguments in ([], ["-h"], ["results.csv", "--help"]):
        code, screen, _ = run(*arguments)
        assert code == 0
        assert "python -m seedstats results.csv better=lower" in screen
    assert run("better=lower") == (2, "", "error: names no file of results, such as results.csv\n")


def test_seedstats_loads_neither_poslab_nor_torch_and_no_pandas_before_it_is_used(file: Path) -> None:
    program = (
        "import sys, seedstats\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'pandas', 'scipy', 'matplotlib', 'numpy'}, loaded\n"
        "assert all(callable(getattr(seedstats, name)) for name in seedstats.__all__)\n"
        "import runpy; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_module('seedstats', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'poslab', 'torch', 'pytorch_lightning', 'hydra'}, loaded\n"
    )
    arguments = ["seedstats", str(file), "better=lower"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine is best: ")
