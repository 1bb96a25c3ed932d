"""Groups against a fixed value, and tables for a paper."""

import math
import re
from pathlib import Path

import pytest
from scipy import stats
from tables import compared, rows

from seedstats.__main__ import main
from seedstats.page import latex
from seedstats.page.blocks import Cell, Table
from seedstats.target import against_target

KIND = {"metric": "val_loss", "better": "lower"}
LOSSES = {"new": [3.2781, 3.2775, 3.2790, 3.2779], "old": [3.2801, 3.2795, 3.2806, 3.2803]}


def test_a_known_spread_makes_a_z_test() -> None:
    sentences, table = against_target(compared(rows(LOSSES, KIND)), 3.28, 0.0013)
    score = (sum(LOSSES["new"]) / 4 - 3.28) / 0.0013 * 2
    assert float(table.rows[0][3]) == pytest.approx(stats.norm.cdf(score), rel=0.05)
    assert float(table.rows[0][4]) == pytest.approx(2 * stats.norm.cdf(score), rel=0.05)
    assert sentences[0].startswith("new is better than 3.28: ")
    assert sentences[1].startswith("old is not shown to be better than 3.28: ")


def test_without_it_each_group_has_its_own() -> None:
    higher = {name: [-x for x in of] for name, of in LOSSES.items()}
    _, table = against_target(compared(rows(higher, KIND | {"better": "higher"})), -3.28)
    p = stats.ttest_1samp(higher["new"], -3.28, alternative="greater").pvalue
    assert float(table.rows[0][3]) == pytest.approx(p, rel=0.05)
    _, alone = against_target(compared(rows({"new": [3.2], "old": [3.3]}, KIND)), 3.28)
    assert {row[4] for row in alone.rows} == {"n/a"}  # one run has no spread


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.csv"
    lines = [f"{name},{seed},{x}" for name, of in LOSSES.items() for seed, x in enumerate(of, 1)]
    file.write_text("\n".join(["name,seed,value", *lines]))
    assert main([str(file), "better=lower", "target=3.28", "sd=0.0013", "latex=true"]) == 0
    assert "new is better than 3.28" in capsys.readouterr().out
    written = (tmp_path / "r-report" / "results.tex").read_text()
    assert written.startswith(r"\begin{tabular}")
    for wrong in (["sd=0.1"], ["target=1", "sd=0"], ["latex=yes"]):
        assert main([str(file), "better=lower", *wrong]) == 2
        assert wrong[-1].partition("=")[0] in capsys.readouterr().err


def test_latex_has_no_character_that_it_would_obey() -> None:
    """Nor one that needs a package, and as many cells in each line."""
    odd = "a_b & 50 % of $x$ #1 {y} ~ ^ \\\\ < > 日 本 é č β −2"
    table = Table("", ["", odd, "n"], [[odd, Cell("1.5", marked=True), "-0.5"]], foot=[["(ref)", "", ""]])
    text = latex.table(table)
    body = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body] == [2, 2, 2]
    bare = re.sub(r"\\[&%#_{}$]|\\[a-z]+|\$[-<>|]\$|\$\\[a-z]+\$|\\\\", "", "\n".join(body))
    assert not re.search(r"[%#_$^~\\]", bare)
    assert "U+65E5 U+672C é č $\\beta$ $-$2" in text
    assert r"\textbf{1.5}" in text
    assert r"& $-$0.5 \\" in text
    assert math.isclose(text.count(r"\begin"), text.count(r"\end"))
