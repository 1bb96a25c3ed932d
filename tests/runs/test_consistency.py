"""Files that can't be those of one run are named and left out, never averaged; a real run contradicts nothing."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import SMOKE
from runs_to_compare import (
    SUMMARY,
    change_config,
    change_summary,
    compare_folders,
    report_of,
    smoke_config,
    write_curve,
    write_run,
    write_task_run,
)

from poslab.comparison.curves import read_curve, with_curves
from poslab.runs.checkpoint_files import save_weights
from poslab.runs.load import read_runs


def left_out(root: Path) -> dict[str, str]:
    runs, left = read_runs([str(root)])
    runs, _, contradicted = with_curves(runs)
    return {one.folder.name: one.reason for one in [*left, *contradicted]}


def summary(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change_summary(folder, **values)


def config(setting: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, setting, value)


def curve(points: dict[int, float]) -> Callable[[Path], None]:
    return lambda folder: write_curve(folder, {step - 1: loss for step, loss in points.items()})


CASES: list[tuple[str, Callable[[Path], None], str]] = [
    ("negative best", summary(best_val_loss=-0.5), "best_val_loss=-0.5, which is never negative"),
    ("negative last", summary(last_val_loss=-1.0), "last_val_loss=-1, which is never negative"),
    ("negative test", summary(test_loss=-2.0), "test_loss=-2, which is never negative"),
    ("negative time", summary(wall_time_s=-3.0), "wall_time_s=-3, which is never negative"),
    ("best above last", summary(best_val_loss=4.5), "best_val_loss=4.5, above last_val_loss=4"),
    ("best after the end", summary(best_step=7), "best_step=7 of 6 steps"),
    ("last after the end", summary(last_val_step=9), "last_val_step=9 of 6 steps"),
    ("edited loss", summary(best_val_loss=3.9, best_val_perplexity=54.6), "=3.9 and best_val_perplexity=54.6"),
    ("edited perplexity", summary(last_val_perplexity=12.0), "last_val_loss=4 and last_val_perplexity=12"),
    ("another run's seed", summary(seed=2), "summary.json says seed=2, config.yaml seed=1"),
    (
        "another class",
        config("pos._target_", "poslab.positions.shaw.Shaw"),
        "config.yaml pos._target_=poslab.positions.",
    ),
    ("another setting", config("pos.num_buckets", 8), "summary.json says pos.num_buckets=32, config.yaml pos.num_"),
    (
        "another context",
        summary(context_length=99),
        "says model.context_length=99, config.yaml model.context_le",
    ),
    ("curve below the best", curve({2: 3.0, 6: 4.0}), "best_val_loss=4, the lowest of its curve is 3"),
    ("best below the curve", curve({2: 5.0, 6: 4.5}), "last_val_loss=4, its curve 4.5 at step 6"),
    ("best elsewhere", curve({3: 4.1, 6: 4.0}), ""),
    ("curve of a longer run", curve({6: 4.0, 12: 3.0}), "its curve goes on to step 12, summary.json ends at step 6"),
    ("curve that ends early", curve({2: 5.0, 4: 4.5}), ""),
    ("no curve", lambda folder: None, ""),
]


@pytest.mark.parametrize(("spoil", "problem"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_contradicts_itself_is_left_out(spoil: Callable[[Path], None], problem: str, tmp_path: Path) -> None:
    spoil(write_run(tmp_path, "t5", 1))
    if not problem:
        assert left_out(tmp_path) == {}
        return
    (reason,) = left_out(tmp_path).values()
    assert reason.startswith("contradicts itself: ")
    assert problem in reason
    assert "\n" not in reason


def test_shares_are_between_0_and_1(tmp_path: Path) -> None:
    folder = write_task_run(tmp_path, "t5", 1, {10: 0.5})
    assert left_out(tmp_path) == {}
    change_summary(folder, exact={"10": 1.5})
    assert left_out(tmp_path) == {
        "t5-seed1": "contradicts itself: summary.json says exact=1.5 at 10, which is no share"
    }


def test_where_another_figure_chooses_the_best_may_lie_above_the_last(tmp_path: Path) -> None:
    folder = write_task_run(tmp_path, "t5", 1, {10: 0.5}, best_val_loss=4.5)
    assert left_out(tmp_path)
    change_config(folder, "monitor", "exact")
    assert left_out(tmp_path) == {}


def write_best(folder: Path, seed: int, **about: Any) -> None:
    plain = smoke_config("t5").plain | {"seed": seed}
    described = {
        "config": plain,
        "pos": "t5",
        "observed": None,
        "data_sha256": SUMMARY["data_sha256"],
        "step": 6,
    } | about
    (folder / "checkpoints").mkdir(exist_ok=True)
    save_weights(folder / "checkpoints" / "best.safetensors", {"w": torch.zeros(1)}, described | about)


def test_weights_of_another_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "t5", 1)
    write_best(folder, 1)
    assert left_out(tmp_path) == {}
    write_best(folder, 2)
    assert left_out(tmp_path) == {"t5-seed1": "contradicts itself: best.safetensors is of seed=2, the run of seed=1"}
    write_best(folder, 1, step=3)
    assert left_out(tmp_path) == {"t5-seed1": "contradicts itself: best.safetensors is of step=3, the run of step=6"}
    write_best(folder, 1, data_sha256="0" * 64)
    assert "best.safetensors is of data_sha256=0000" in left_out(tmp_path)["t5-seed1"]
    (folder / "checkpoints" / "best.safetensors").write_bytes(b"half a file")
    assert left_out(tmp_path) == {}  # it says nothing; whoever needs the weights refuses them


def test_a_real_run_contradicts_nothing_and_an_edited_one_does(trained: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained(*SMOKE, "pos=t5"), run)
    assert left_out(tmp_path) == {}
    assert read_curve(run).validation
    assert (run / "checkpoints" / "best.safetensors").exists()
    figures = json.loads((run / "summary.json").read_text())
    lower = figures["best_val_loss"] - 0.01
    change_summary(run, best_val_loss=lower, last_val_loss=lower, best_val_perplexity=math.exp(lower))
    change_summary(run, last_val_perplexity=math.exp(lower))
    assert "its curve " in left_out(tmp_path)[run.name]


@pytest.mark.usefixtures("no_figures")
def test_the_page_names_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        write_run(tmp_path, "absolute", seed)
        write_run(tmp_path, "t5", seed, 3.9)
    curve({6: 4.4})(tmp_path / "t5-seed2")
    change_summary(tmp_path / "absolute-seed2", best_val_loss=-1.0)
    folder = report_of(tmp_path)
    assert "left out" in capsys.readouterr().out
    text = (folder / "report.md").read_text()
    assert "t5-seed2: contradicts itself: summary.json says last_val_loss=3.9, its curve 4.4 at step 6" in text
    assert "absolute-seed2: contradicts itself: summary.json says best_val_loss=-1" in text
    assert compare_folders(tmp_path / "t5-seed1").groups[0].values == {1: 3.9}
