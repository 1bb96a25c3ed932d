"""All pairs of groups as one family, their matrix, and names of groups that can be typed."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from runs_to_compare import (
    change_config,
    compare,
    compare_folders,
    page_in,
    report_of,
    sentences,
    set_scheme,
    write_run,
    write_sweep,
)
from scipy import stats

from poslab.comparison.pairs import in_lines, matrix
from poslab.config.command_line import parse_line
from poslab.config.nodes import schemes
from poslab.config.schemes import parse_scheme
from poslab.config.scripts import CompareConfig
from poslab.errors import UserError
from poslab.positions.base import ENTRANCES, HOOKS, knows_nothing
from poslab.report.blocks import Cell
from poslab.runs.load import read_runs
from poslab.statistics.families import holm


def test_every_pair_is_tested_in_one_family(tmp_path: Path) -> None:
    """Also those with the baseline, whose p-values the table shows."""
    losses = write_sweep(tmp_path, absolute=0.0, shaw=-0.02, t5=-0.04, nope=0.01)
    pairs = itertools.combinations(losses, 2)
    alone = {pair: stats.ttest_rel(*(list(losses[pos].values()) for pos in pair)).pvalue for pair in pairs}
    expected = {frozenset(pair): p for pair, p in holm(alone).items()}
    comparison = compare_folders(tmp_path, pairs="all")
    assert {frozenset(pair): d.p_value for pair, d in comparison.pairs.items()} == pytest.approx(expected)
    assert all(d.comparisons == 6 for d in comparison.pairs.values())
    assert {name: d.p_value for name, d in comparison.differences.items()} == pytest.approx(
        {name: expected[frozenset({name, "absolute"})] for name in ("shaw", "t5", "nope")}
    )
    assert comparison.differences["t5"].mean == pytest.approx(
        np.mean([losses["t5"][seed] - losses["absolute"][seed] for seed in losses["t5"]])
    )
    assert not compare_folders(tmp_path).pairs


def test_sentences_of_pairs_name_the_better_first(tmp_path: Path) -> None:
    write_sweep(tmp_path, absolute=0.0, shaw=-0.3, t5=-0.6)
    said = sentences(compare_folders(tmp_path, pairs="all"))
    assert [re.sub(r" by .*", "", sentence) for sentence in said] == [
        "t5 is better than absolute", "shaw is better than absolute", "t5 is better than shaw",
        "of all 3 pairs 3 are shown to differ",
    ]  # fmt: skip


def test_many_schemes_are_a_matrix(tmp_path: Path) -> None:
    names = sorted(schemes())[:6]
    write_sweep(tmp_path, seeds=3, **{name: 0.2 * place for place, name in enumerate(names)})
    found = matrix(compare_folders(tmp_path, pairs="all"))
    assert [len(row) for row in found.rows] == [len(names)] * (len(names) - 1)
    label, *cells = found.rows[2]
    assert label == f"3 {names[2]}"
    assert [cell == "" for cell in cells] == [True, True] + [False] * (len(names) - 3)
    assert isinstance(cells[-1], Cell)
    assert cells[-1].marked
    assert re.match(rf"{names[2]} - {names[-1]}: -\d\.\d+ \[-\d\.\d+, -\d\.\d+\], n = 3, p = ", cells[-1].tooltip)


@pytest.mark.usefixtures("no_figures")
def test_the_page_of_all_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path, seeds=4, absolute=0.0, shaw=-0.3, t5=-0.6, nope=0.3, rope=-0.9)
    folder = report_of(tmp_path, pairs="all")
    found = matrix(compare_folders(tmp_path, pairs="all"))
    first, *cells = found.rows[0]
    texts = [cell.text for cell in cells if isinstance(cell, Cell) and cell.marked]
    assert len(texts) == 4
    assert [first, *texts] in page_in(folder).rows
    screen = capsys.readouterr().out
    assert "- rope is better than t5 by 0." in screen
    assert "- of all 10 pairs 10 are shown to differ" in screen
    assert "for all 10 comparisons of this page" in (folder / "report.md").read_text()


def test_pairs_of_many_schemes_are_summed_up(tmp_path: Path) -> None:
    names = sorted(schemes())[:3]
    write_sweep(tmp_path, seeds=4, **{name: 0.5 * place for place, name in enumerate(names)})
    assert in_lines(compare_folders(tmp_path, pairs="all")) == [
        f"{names[0]} is better than 2: {names[1]}, {names[2]}",
        f"{names[1]} is better than 1: {names[2]}",
        "pairs that are shown to differ: 3 of 3",
    ]


def test_what_knows_nothing_of_position() -> None:
    assert set(ENTRANCES) <= set(HOOKS)
    assert [name for name in schemes() if knows_nothing(parse_scheme(name))] == ["nope"]
    combined = {"_target_": "poslab.positions.combined.Combined", "first": "nope", "second": "nope"}
    assert knows_nothing(parse_scheme(combined))
    assert not knows_nothing(parse_scheme(combined | {"second": "t5"}))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("grid")
    for distance in (4, 16):
        for keys, values in ((True, True), (True, False), (False, True)):
            folder = write_run(root / f"{distance}{keys}{values}", "shaw", 1, 4.0 + distance / 100)
            set_scheme(folder, max_distance=distance, keys=keys, values=values)
    write_run(root, "nope")
    change_config(write_run(root / "fast", "t5"), "optim.position_learning_rate_factor", 8.0)
    write_run(root / "slow", "t5")
    write_run(root, "randomized")
    return root


def test_every_label_names_its_group(grid: Path) -> None:
    """As it is printed, through the command line."""
    runs, _ = read_runs([str(grid)])
    labels = [group.label for group in compare(runs).groups]
    assert len(labels) == len(set(labels)) == 10
    for label in labels:
        config = parse_line(CompareConfig, [f"runs={grid}", f"baseline={label}"])
        assert compare(runs, baseline=config.baseline).baseline == label


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("shaw max_distance=16", "shaw max_distance=16 keys=true values=true"),  # the rest as usual
        ("shaw values=false max_distance=4", "shaw max_distance=4 keys=true values=false"),
        ("t5", "t5 position_learning_rate_factor=1.0"),
        ("t5 position_learning_rate_factor=8", "t5 position_learning_rate_factor=8.0"),
    ],
)
def test_some_settings_name_a_group(typed: str, meant: str, grid: Path) -> None:
    assert compare_folders(grid, baseline=typed).baseline == meant


def test_a_name_of_several_groups_means_the_first(tmp_path: Path) -> None:
    """In the order of the table, from the most usual settings on."""
    for distance in (3, 5):
        set_scheme(write_run(tmp_path / str(distance), "shaw"), max_distance=distance)
    assert compare_folders(tmp_path, baseline="shaw").baseline == "shaw max_distance=3"
    with pytest.raises(UserError, match="baseline=shaw max_distance=4: unknown; did you mean shaw max_distance="):
        compare_folders(tmp_path, baseline="shaw max_distance=4")
