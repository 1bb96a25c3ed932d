"""All pairs of groups as one family, their matrix, and names of groups that can be typed."""

from pathlib import Path

import pytest
from runs_to_compare import (
    change_config,
    compare,
    set_scheme,
    write_run,
)

from poslab.config.command_line import parse_line
from poslab.config.nodes import schemes
from poslab.config.schemes import parse_scheme
from poslab.config.scripts import CompareConfig
from poslab.positions.base import ENTRANCES, HOOKS, knows_nothing
from poslab.runs.load import read_runs


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
