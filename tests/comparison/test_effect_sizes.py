"""What differences are worth: perplexity, steps and time to the same loss."""

import math
from pathlib import Path

import pandas as pd
import pytest
from runs_to_compare import compare_folders, write_run, write_sweep, write_task_run

from poslab.comparison.curves import Curve
from poslab.comparison.effect_sizes import effect_size_table, steps_to


@pytest.mark.parametrize(
    ("level", "step"), [(6, 10), (5, 10), (4.5, 15), (4, 20), (3.25, 27.5), (3, 30), (2.9, None)], ids=str
)
def test_steps_to_a_loss(level: float, step: float | None) -> None:
    assert steps_to(level, pd.Series({10: 5.0, 20: 4.0, 30: 3.0, 40: 3.5})) == step


def curves_of(**validation: list[float]) -> dict[str, dict[int, Curve]]:
    """By label, at steps 10, 20, ..., for seeds 1 and 2, around these losses."""
    return {
        label: {
            seed: Curve([], [(10 * n, loss + noise) for n, loss in enumerate(losses, 1)])
            for seed, noise in ((1, 0.1), (2, -0.1), (3, 0.0))
        }
        for label, losses in validation.items()
    }


def test_the_table(tmp_path: Path) -> None:
    """t5 is at absolute's last loss in half of the steps, each of which takes 1.5 times as long; shaw never is."""
    for seed, noise in ((1, 0.1), (2, -0.1), (3, 0.0)):
        facts = {"tokens": 6000, "steps": 30}
        write_run(tmp_path, "absolute", seed, 4.0 + noise, tokens_per_s=100.0, **facts)
        write_run(tmp_path, "t5", seed, 3.5 + 2 * noise, tokens_per_s=100 / 1.5, **facts)
        write_run(tmp_path, "shaw", seed, 4.5 + noise, tokens_per_s=50.0, **facts)
    curves = curves_of(absolute=[6, 5, 4], t5=[4.5, 3.5, 3.5], shaw=[5, 4.5, 4.1])
    table = effect_size_table(compare_folders(tmp_path), curves)
    assert table.columns[2] == "times the baseline's"
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["absolute"] == [f"{math.exp(4):.1f}", "1", "", "", "", "1.00"]
    assert rows["t5"][:2] == [f"{math.exp(3.5):.1f}", f"{math.exp(-0.5):.3f}"]
    low, high = map(float, rows["t5"][2].split(" to "))
    assert low < math.exp(-0.5) < high
    assert rows["t5"][3:] == ["50 %", "75 %", "1.50"]
    assert rows["shaw"][3:] == ["never", "never", "2.00"]


def test_a_baseline_that_ends_above_its_best_is_met_at_its_own_first_step(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=-0.1)
    curves = curves_of(absolute=[5, 4, 3, 4], t5=[4, 3, 3, 3])
    curves["t5"][1] = Curve([], [*curves["t5"][1].validation[:3], (40, math.inf), (50, 1.0)])  # counts up to there
    table = effect_size_table(compare_folders(tmp_path), curves)
    assert next(row for row in table.rows if row[0] == "t5")[4] == "50 %"  # 10 of 20 steps, not of 40


def test_what_is_not_known_is_not_made_up(tmp_path: Path) -> None:
    for pos, loss in (("absolute", 4.0), ("t5", 800.0)):
        write_run(tmp_path, pos, 1, loss, tokens_per_s=0.0)
    table = effect_size_table(compare_folders(tmp_path), {"absolute": {1: Curve([], [])}})
    assert next(row for row in table.rows if row[0] == "t5") == ["t5", "inf", "inf", "n/a", "n/a", "n/a", "n/a"]


def test_only_losses_of_several_groups_have_effects(tmp_path: Path) -> None:
    write_run(tmp_path / "alone")
    assert effect_size_table(compare_folders(tmp_path / "alone"), {}) is None
    for pos in ("absolute", "t5"):
        write_task_run(tmp_path / "task", pos, 1, {10: 0.5, 20: 0.2})
    assert effect_size_table(compare_folders(tmp_path / "task"), {}) is None
