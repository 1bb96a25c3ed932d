"""The report of a comparison: its page, files and figures."""

import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure as Drawing
from scipy import stats
from tables import BASE, SHARE, SHAW, losses, reference, rows, said, table_of

from seedstats import compare, read_table, report
from seedstats.figures import scores_figure, styles_of
from seedstats.lengths import length_table
from seedstats.page import terminal
from seedstats.page.blocks import Bullets, Figure, Text, figures
from seedstats.reporting import Report
from seedstats.section import Section


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Two tasks and a text."""
    of_copy = [
        rows({name: [share / part for share in of] for name, of in (("absolute", BASE), ("shaw", SHAW))}, SHARE,
             data="copy", length=length)
        for length, part in ((20, 1), (40, 4))
    ]  # fmt: skip
    of_sort = rows({"absolute": SHAW, "shaw": BASE, "t5": SHAW}, SHARE, data="sort", length=20)
    return table_of(*of_copy, of_sort, rows(losses(absolute=0.0, shaw=-0.1), data="a text"))


@pytest.fixture(scope="module")
def folder(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(compare(table), tmp_path_factory.mktemp("report") / "new", table).parent


def test_each_kind_of_data_has_its_section_below_all_answers(folder: Path, table: pd.DataFrame) -> None:
    text, html = (folder / "report.md").read_text(), (folder / "report.html").read_text()
    one, other, of_text = compare(table).values()
    answers = [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")][:3]
    assert [re.sub(r"\d\.\d+|\[.*?\]", "#", answer) for answer in answers] == [
        "copy: shaw is best: better than absolute by # of the examples #, 8 seeds.",
        "sort: The best is absolute or t5. shaw is not the best.",
        "a text: shaw is best: better than absolute by # nats #, 5 seeds.",
    ]
    for title, comparison in (("copy", one), ("sort", other), ("a text", of_text)):
        section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert all(f"- {sentence}\n" in section for sentence in said(comparison))
        assert "for all 4 comparisons of this page" in section
    assert "Metric: exact at 20, share of the examples. Higher is better." in text
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(set(ids)) == len(ids)
    links = re.findall(r'<a href="#([^"]*)"', html)
    assert len(links) == 3
    assert {*links} <= {*ids}


def test_the_published_table_says_the_same(folder: Path, table: pd.DataFrame, tmp_path: Path) -> None:
    """Its results.csv gives the same report, and itself again."""
    again = report(compare(read_table(folder / "results.csv")), tmp_path, read_table(folder / "results.csv"))
    assert again == tmp_path / "report.html"
    for name in ("results.csv", "report.md", "report.html"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
    names = [f"{data}_results_{number}.svg" for data in ("a_text", "copy", "sort") for number in (1, 2)]
    assert sorted(file.name for file in (folder / "figures").iterdir()) == names


def test_a_report_of_one_comparison_begins_with_its_answer() -> None:
    (one,) = compare(table_of(rows(losses(absolute=0.0, t5=-0.1)), reference("bigram", 3.0))).values()
    drawing = Figure("results", "More", "Of it.", [Drawing()])
    section = Section("text", one, "Of the last step.", ["trained briefly"], {"size": {"t5": "12"}}, figures=[drawing],
                      notes=["a note"], sources=[Text("How to repeat it.")])  # fmt: skip
    whole = Report([section], command="python -m seedstats", left_out=["no runs"], across=[drawing])
    headline, worse, *_ = whole.blocks[0].text
    assert headline.text.startswith("t5 is best: ")
    assert (worse.text, worse.large) == (
        "t5, absolute are not shown to be better than the bigram (3.0000).",
        True,
    )  # in its size
    names = [figure.name for figure in figures(whole.blocks)]
    assert sorted(names) == ["results", "results_", "results__"]
    texts = "\n".join(map(str, whole.blocks))
    for words in ("Of the last step.", "a note", "How to repeat it.", "python -m seedstats", "no runs"):
        assert words in texts
    lists = [block for block in whole.blocks[0].text if isinstance(block, Bullets)]
    assert [block.items for block in lists if block.kind == "caveat"] == [["trained briefly."]]
    assert whole.blocks[1].title == "Results"
    assert not whole.blocks[1].folded  # all below is
    table = section.table
    assert (table.columns[-1], [row[-1] for row in table.rows]) == ("size", ["12", "n/a"])
    lines = terminal.page(whole.on_screen).splitlines()
    assert lines[:2] == [headline.text, f"  caveat: {worse.text}"]
    heads = ["n", "loss", "95 % interval, each alone", "difference", "95 % interval, all at once", "p (Holm)"]
    assert re.split(r"\s{2,}", lines[2].strip()) == heads
    assert [line.split()[0] for line in lines[3:6]] == ["t5", "absolute", "(bigram)"]
    assert lines[7:] == [f"- {said(one)[0]}", "  caveat: trained briefly."]


# Figures


def test_two_groups_never_look_alike() -> None:
    labels = [f"name {number}" for number in range(30)]
    styles = styles_of(labels, baseline="name 3")
    seen = ("color", "marker", "linestyle")
    assert len({tuple(styles[label][key] for key in seen) for label in labels}) == 30
    assert styles_of(labels[::-1])["name 7"] == styles["name 7"]
    assert [label for label in labels if "(baseline)" in styles[label]["label"]] == ["name 3"]


def test_the_figure_of_runs_shows_differences_and_values() -> None:
    """Each group in a row, the worst one below; proportions at their own scale, references as lines."""
    (one,) = compare(table_of(rows({"absolute": BASE, "shaw": SHAW}, SHARE, length=20), reference(
        "chance", 0.5, SHARE, length=20))).values()  # fmt: skip
    differences, by_run = (panel.axes[0] for panel in scores_figure(one).panels)
    assert differences.get_xlabel() == "difference from absolute (better: right)"
    assert by_run.get_xlabel() == "exact at 20, share of the examples"
    assert sorted(by_run.lines[0].get_xdata()) == sorted(BASE)
    assert by_run.get_xlim() == (-0.03, 1.03)
    assert [text.get_text() for text in by_run.texts] == ["chance"]
    (alone,) = compare(table_of(rows(losses(absolute=0.0)))).values()
    (only,) = (panel.axes[0] for panel in scores_figure(alone).panels)
    assert only.get_xlabel() == "loss, nats per token"


def test_a_dollar_sign_begins_no_formula() -> None:
    """A broken formula raises where it is drawn."""
    costs = {"metric": "cost in $_$", "unit": "$", "better": "lower"}
    (one,) = compare(table_of(rows({"$^$": BASE, "b": SHAW}, costs))).values()
    assert len(scores_figure(one).svgs) == 2


def test_sections_in_other_scripts_have_ids_of_their_own() -> None:
    parts = [rows(losses(absolute=0.0, shaw=-0.1), data=data) for data in ("日本語", "中文", "a b")]
    ids = [Section(title, one).id for title, one in compare(table_of(*parts)).items()]
    assert ids == ["日本語", "中文", "a_b"]


# By length


def test_means_by_length_stand_in_a_table_and_a_file(tmp_path: Path) -> None:
    """Each with its interval; of a length that a seed lacks there is none."""
    values = {
        16: {"absolute": [4.01, 4.02, 4.03], "t5": [3.91, 3.92, 3.93]},
        32: {"absolute": [3.01, 3.02, 3.03], "t5": [2.81, 2.82, 2.83]},
        64: {"t5": [2.51, 2.52, None]},
    }
    table = table_of(*(rows(of_length, length=length) for length, of_length in values.items()))
    (one,) = compare(table, length=16).values()
    found = length_table(one, "loss", "Loss by length")
    assert found.columns == ["", "16", "32", "64"]
    low, high = stats.t.interval(0.95, 2, 4.02, stats.sem([4.01, 4.02, 4.03]))
    cells = {row[0]: row[1:] for row in found.rows}
    assert cells["absolute"] == [
        f"4.020 [{low:.3f}, {high:.3f}]", f"3.020 [{low - 1:.3f}, {high - 1:.3f}]", "n/a",
    ]  # fmt: skip
    assert cells["t5"][2] == "n/a"
    report({"data": one}, tmp_path, table)
    written = pd.read_csv(tmp_path / "by_length.csv")
    assert written.groupby("name")["length"].agg(list).to_dict() == {"absolute": [16, 32], "t5": [16, 32]}
    first = written[(written["name"] == "absolute") & (written["length"] == 16)].iloc[0]
    assert (first["n"], first["mean"], first["low"], first["high"]) == (3, *map(pytest.approx, (4.02, low, high)))
    assert length_table(one, "other", "") is None
