"""What a report writes: the page, the table, the results of every run, and names that are no plain words."""

import math
import os
import re
import shutil
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from paired_figures import differences
from runs_to_compare import (
    change_summary,
    compare_folders,
    markdown_rows,
    page_in,
    plan_of,
    report_of,
    write_curve,
    write_evaluation,
    write_run,
    write_sweep,
)

from poslab.config.nodes import schemes
from poslab.runs.evaluation import LengthLoss
from poslab.runs.plan import add_to_plan
from seedstats.answers import headline
from seedstats.finding import p_text
from seedstats.statistics.intervals import estimate


@pytest.mark.usefixtures("no_figures")
def test_table_has_a_row_per_scheme(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, absolute=0.0, shaw=-0.3, t5=-0.6)
    folder = report_of(tmp_path)
    rows = page_in(folder).results
    assert [row[0] for row in rows] == ["t5", "shaw", "absolute"]
    assert markdown_rows(folder)[2:] == rows
    assert page_in(folder).headlines == [headline(compare_folders(tmp_path))]
    for row in rows:
        loss = estimate(losses[row[0]].values())
        assert row[1:5] == ["5", f"{loss.mean:.2f}", "{:.2f} to {:.2f}".format(*loss.interval), f"{loss.sd:.2f}"]
        assert row[9:12] == ["1,000", "1,500", "512"]
    found = differences(losses, "absolute")["t5"]
    assert rows[0][5:7] == [f"{found.mean:+.3f}", "{:+.3f} to {:+.3f}".format(*found.interval)]
    assert rows[0][7] == p_text(found.p_value)
    assert rows[2][5:8] == ["baseline", "", ""]


@pytest.mark.usefixtures("no_figures")
def test_many_answers_are_summed_up_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    effects = {"absolute": 0.0, **{f"shaw{n}": -0.3 for n in range(4)}, "t5a": 0.3, "t5b": 0.001, "t5c": 0.3}
    for label, effect in effects.items():
        for seed, noise in enumerate((0.001, -0.002, 0.0), 1):
            run = write_run(tmp_path / "new", label[:8].rstrip("0123abc"), seed, 4 + effect + noise * len(label))
            change_summary(run, pos=label)
            run.rename(tmp_path / f"{label}-{seed}")
    folder = report_of(tmp_path)
    page = page_in(folder)
    in_short, one_by_one = page.lists[:2]
    assert capsys.readouterr().out.count("\n- ") == len(in_short)
    assert page.headlines == ["The best is shaw0, shaw1, shaw2 or shaw3. The 4 others are not the best."]
    assert in_short == [
        "Better than absolute (4 of 7): shaw0, shaw1, shaw2, shaw3.",
        "Worse than absolute (2 of 7): t5a, t5c.",
        "No difference from absolute is shown (1 of 7): t5b.",
    ]
    assert len(one_by_one) == 7
    text = (folder / "report.md").read_text()
    places = [text.index(part) for part in (page.headlines[0], *in_short, "figures/results_1.svg", one_by_one[0])]
    assert places == sorted(places)


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_a_scheme_that_is_lost_is_named_beside_the_answer(tmp_path: Path) -> None:
    names = ["absolute", *sorted(set(schemes()) - {"absolute"})[:8]]
    write_sweep(tmp_path, seeds=3, **{name: -0.5 * place for place, name in enumerate(names)})
    add_to_plan(tmp_path, plan_of(tmp_path, range(1, 4)))
    for folder in tmp_path.glob(f"{names[-1]}-seed*"):
        shutil.rmtree(folder)
    page = page_in(report_of(tmp_path))
    lost = f"{names[-1]} has no finished run: 3 of 3 seeds are missing."
    assert page.headlines[0].endswith(f" Left out, because there is no finished run: {names[-1]}.")
    assert page.lists[0][0].startswith("Better than absolute (7 of 7): ")
    assert page.lists[1] == [lost]


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_untrained_models_stand_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = {"uniform": 7.3, "unigram": 6.1, "bigram": 5.4}
    for pos, loss in (("absolute", 5.5), ("t5", 5.1)):
        for seed in range(1, 6):
            write_run(tmp_path, pos, seed, loss + 0.001 * seed**2 * len(pos), untrained_losses=losses)
    folder = report_of(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    untrained = [line.split() for line in lines if line.startswith("(")]
    (places,) = {len(value.partition(".")[2]) for *_, value in untrained}  # as the means above them
    assert untrained == [[f"({name}", "model)", f"{loss:.{places}f}"] for name, loss in reversed(losses.items())]
    for rows in (page_in(folder).results, markdown_rows(folder)):
        assert ["(bigram model)", "", f"{5.4:.{places}f}"] in [row[:3] for row in rows]
    assert (
        page_in(folder).headlines[1]
        == "absolute is not shown to be better than the bigram model (5.4000): undertrained."
    )


@pytest.mark.usefixtures("no_figures")
def test_the_table_of_results_is_the_one_compared(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=3, absolute=0.0, t5=-0.1)
    for folder in tmp_path.glob("t5-*"):
        lengths = [LengthLoss(16, 8, 4.5, 4.25, [4.0] * 16, 3), LengthLoss(64, 32, note="knows 32 positions")]
        write_evaluation(folder, lengths=lengths)
    folder = report_of(tmp_path)
    rows = pd.read_csv(folder / "results.csv")
    assert (str(tmp_path) + "/" + rows["name"] + "-seed" + rows["seed"].astype(str) == rows["folder"]).all()
    assert rows.loc[0, ["name", "seed", "metric"]].tolist() == ["absolute", 1, "last validation loss"]
    by_metric = rows.set_index(["name", "seed"]).groupby("metric")["value"]
    expected = {(scheme, seed): loss for scheme, of_seeds in losses.items() for seed, loss in of_seeds.items()}
    assert by_metric.get_group("last validation loss").to_dict() == expected
    for metric in ("best validation loss", "steps", "params_scheme", "peak_memory_mb"):
        assert set(by_metric.get_group(metric).index) == set(expected)
    assert {row[0]: row[-1] for row in page_in(folder).results} == {"t5": "knows 32 positions", "absolute": "n/a"}


def test_report_fetches_nothing_and_is_whole(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=0.0)
    for number, folder in enumerate(sorted(tmp_path.glob("*-seed*"))):
        write_curve(folder, {1: 5.0, 2: 4.5, 3: math.inf if number else 4.0})  # as in runs that diverge in the end
        lengths = [LengthLoss(n, n // 2, 4.0, math.nan, [4.0] * n, 3) for n in (16, 32, 64)]
        write_evaluation(folder, lengths=lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = report_of(tmp_path)
    page = page_in(folder)
    assert all(source.startswith("data:") for source in page.sources)
    text = (folder / "report.html").read_text()
    assert not re.search(r"https?://|@import|url\((?!#)|<script[^>]", text)
    shown = re.findall(r"\]\((figures/.*?)\)", (folder / "report.md").read_text())
    named = dict.fromkeys(re.sub(r"_\d+$", "", Path(name).stem) for name in shown)
    assert [*named] == ["results", "costs", "curves", "by_position", "by_length"]
    for name in shown:
        assert ElementTree.parse(folder / name).getroot().tag.endswith("svg")
    assert text.count("<svg ") == len(shown)
    assert len(page.sources) == 1  # the icon


@pytest.mark.usefixtures("no_figures")
def test_twice_gives_the_same(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=0.0)
    folder = report_of(tmp_path)
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report_of(tmp_path) == folder
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first
    assert {path.name for path in first} >= {"report.html", "report.md", "results.csv"}


@pytest.mark.usefixtures("no_figures")
def test_facts_of_runs_that_differ(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", git_commit="aaa", train_tokens=None)
    write_run(tmp_path, "t5", git_commit="bbb", vocabulary_size=9)
    text = (report_of(tmp_path, allow_differences=True) / "report.md").read_text()
    assert "git commit aaa or bbb" in text
    assert "1,417 or 9 tokens" in text
    assert "unknown or 4,612 training tokens" in text


@pytest.mark.usefixtures("blank_pictures")
def test_folders_whose_names_are_no_text(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    try:
        write_run(root, "t5")
    except OSError:
        pytest.skip("this file system takes no such names")
    folder = report_of(root, out=str(tmp_path / "out"))
    assert "t5-seed1" in (folder / "report.html").read_text(encoding="utf-8")
