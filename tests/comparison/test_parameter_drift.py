"""How far training moved what a scheme learns: the tables before the first step, beside those of the best weights."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from common import SMOKE, compose_config
from runs_to_compare import group_of, report_of, write_run
from safetensors.torch import load_file, save_file

from poslab import GPT
from poslab.comparison import parameter_drift
from poslab.evaluation.pictures import draw
from poslab.positions import Curves
from poslab.runs.checkpoint_files import start_and_best
from poslab.runs.folder import RunFolder
from poslab.training.train import train

T5 = (*SMOKE, "pos=t5", "pos.num_buckets=32", "pos.max_distance=256", "sample.new_tokens=0")


@pytest.fixture
def run(trained: Callable[..., Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained(*T5), tmp_path / "run"))


def test_the_start_is_what_the_seed_draws(run: Path) -> None:
    start = load_file(RunFolder(run).start)
    config = compose_config(*T5)
    torch.manual_seed(1)
    model = GPT(config.pos, vocab_size=1417, **{"context_length": 32, "embed_dim": 32, "num_layers": 2, "num_heads": 2})
    drawn = dict(model.position_tables.named_parameters())
    assert start.keys() == drawn.keys()
    assert all(torch.equal(start[name], drawn[name]) for name in start)


def test_a_run_that_goes_on_keeps_its_start(run: Path) -> None:
    file = RunFolder(run).start
    before = file.read_bytes()
    train(compose_config(*T5, f"resume={run}", "trainer.max_epochs=3"))
    assert file.read_bytes() == before


def test_schemes_that_learn_nothing_have_no_such_file(trained: Callable[..., Path]) -> None:
    assert not RunFolder(trained(*SMOKE, "pos=nope", "sample.new_tokens=0")).start.exists()


def test_moves_by_definition(tmp_path: Path) -> None:
    """And buckets beyond the training length, which never come up, never move."""
    folder = write_run(tmp_path, "t5", steps=10)
    start = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    best = torch.tensor([[3.0, 4.0], [0.006, 0.0]])
    files = RunFolder(folder)
    files.checkpoints.mkdir()
    assert parameter_drift.of_run(group_of(tmp_path).runs[0]) == {}
    save_file({"bias": start}, files.start)
    save_file({"position_tables.bias": best, "token_embedding.weight": torch.zeros(3)}, files.best)
    (found,) = parameter_drift.of_run(group_of(tmp_path).runs[0]).values()
    assert (found.numbers, found.start, found.still) == (4, 2.5, 0.75)
    assert found.moved == pytest.approx(0.003)
    assert found.of_most == pytest.approx(0.003 / (1e-3 * 10))
    table = parameter_drift.table([group_of(tmp_path)])
    assert table is not None
    assert table.rows == [["t5", "bias", "4", "2.5", "0.003", "30%", "75%"]]
    save_file({"bias": start[:1]}, files.start)
    assert parameter_drift.table([group_of(tmp_path)]) is None
    files.start.write_bytes(b"no tensors")
    assert parameter_drift.table([group_of(tmp_path)]) is None


def test_what_training_never_reached(run: Path) -> None:
    """Of 32 buckets up to 256, windows of 32 reach those of distances up to 31."""
    (name, (start, best)), *_ = start_and_best(RunFolder(run)).items()
    moved = (start != best).any(0) if start.shape[0] == 2 else (start != best).any(-1)
    assert 16 < int(moved.sum()) < 32, name


@pytest.mark.usefixtures("blank_pictures")
def test_the_report_tells(run: Path) -> None:
    folder = report_of(run.parent)
    for file in ("report.html", "report.md"):
        text = (folder / file).read_text()
        assert "ow far training moved what schemes learn" in text
        assert "dotted: before training" in text


def test_a_picture_shows_the_start_as_dots() -> None:
    now, start = (Curves("bias", "distance", "bias", [0, 1], {"head 1": torch.tensor(v)}) for v in ([1.0, 2], [0.0, 0]))
    (axes,) = draw(now, start).axes
    line, dotted = axes.lines
    assert dotted.get_linestyle() == ":"
    assert dotted.get_ydata().tolist() == [0, 0]
    assert line.get_color() == dotted.get_color()
    assert len(draw(now).axes[0].lines) == 1
