"""What one further pair of runs will show."""

from pathlib import Path

import pytest
from runs_to_compare import compare_folders, write_sweep, write_task_run

from poslab.comparison.compare import compare_table
from poslab.comparison.next_seed import next_seed_table
from poslab.comparison.source import read_table_file
from poslab.config.scripts import CompareConfig
from poslab.statistics.prediction import next_difference


def test_a_row_for_each_other_scheme(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, absolute=0.0, shaw=-0.08)
    table = next_seed_table(compare_folders(tmp_path))
    ((name, chance, interval, correlation, saved),) = table.rows
    ahead = next_difference([losses["shaw"][seed] - losses["absolute"][seed] for seed in losses["shaw"]])
    assert (name, interval) == ("shaw", f"{ahead.low:+.4f} to {ahead.high:+.4f}")
    assert chance == "100 % [100 %, 100 %]"
    assert float(correlation.split()[0]) > 0.9
    assert float(saved.removesuffix(" times").replace(",", "")) > 10


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_spread_takes_three_seeds(seeds: int, tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=seeds, absolute=0.0, shaw=-0.08)
    assert next_seed_table(compare_folders(tmp_path)) is None


def test_higher_figures_of_other_metrics_are_better(tmp_path: Path) -> None:
    lines = ["scheme,seed,value,metric,better"]
    lines += [f"plain,{seed},{20 + seed % 3},bleu,higher" for seed in range(1, 6)]
    lines += [f"mine,{seed},{30 + seed % 2},bleu,higher" for seed in range(1, 6)]
    (tmp_path / "results.csv").write_text("\n".join(lines))
    config = CompareConfig(table=str(tmp_path / "results.csv"))
    (comparison,) = compare_table(read_table_file(config).table, config)[0].values()
    ((name, chance, interval, *_),) = next_seed_table(comparison).rows
    low, high = map(float, interval.split(" to "))
    assert (name, low > 0, high > low) == ("mine", True, True)
    assert int(chance.split(" %")[0]) > 90


def test_three_seeds_that_solve_a_task_promise_nothing_of_the_fourth(tmp_path: Path) -> None:
    for seed, exact in enumerate([1.0, 1.0, 0.998], start=1):
        write_task_run(tmp_path, "shaw", seed, {10: 1.0, 20: exact})
        write_task_run(tmp_path, "absolute", seed, {10: 1.0, 20: 0.0})
    assert next_seed_table(compare_folders(tmp_path / "copy")) is None
