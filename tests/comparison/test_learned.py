"""What a report measures and draws of runs' checkpoints, and what it says where it can't."""

import functools
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import SMOKE, compose_config
from matplotlib.figure import Figure
from runs_to_compare import group_of, page_in, report_of, smoke_config, write_evaluation, write_run
from safetensors.torch import load_file, save_file
from torch import Tensor

from poslab import GPT
from poslab.comparison.learned import drift, drift_table
from poslab.evaluation.pictures import draw
from poslab.positions import Curves
from poslab.runs.checkpoint_files import describe, read_checkpoint, save_weights, start_and_best
from poslab.runs.evaluation import read_evaluation
from poslab.runs.folder import RunFolder
from poslab.training.data.text import TextDataModule
from poslab.training.train import train


@functools.cache
def untrained(pos: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(weights, description) of a model."""
    config = smoke_config(pos)
    data = TextDataModule(config)
    model = GPT(config.pos, vocab_size=data.vocabulary.size, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    state = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    return state, describe(config, data.corpus.vocabulary, data.corpus.sha256)


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    """Run folders of two schemes, with weights and evaluations."""
    folders = {pos: write_run(tmp_path / "runs", pos) for pos in ("absolute", "t5")}
    for pos, folder in folders.items():
        (folder / "checkpoints").mkdir()
        save_weights(folder / "checkpoints" / "best.safetensors", *untrained(pos))
        write_evaluation(folder)
    return folders


@pytest.mark.usefixtures("blank_pictures")
def test_weights_are_evaluated_and_drawn(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for run in models.values():
        (run / "evaluation.json").unlink()
    folder = report_of(models["t5"].parent)
    shown = re.findall(r"figures/(\w+)\.svg", (folder / "report.md").read_text())
    assert shown[:6] == ["losses", "trade_offs", "by_position", "by_length", "last", "attention"]  # and no empty curves
    assert {"learned_t5_bias", "learned_absolute_similarity"} <= set(shown[6:])
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if "no loss curve" not in line] == []
    assert "measuring 2 runs by length and position, which takes about 0:" in out
    assert "on 33 stretches of the validation text, which chose them, the checkpoints of" in out
    evaluation = read_evaluation(models["t5"])
    assert 7 < evaluation.lengths[-1].sliding_loss < 8  # log of 1,417, as nothing was learned
    evaluated = {path: path.read_bytes() for path in models["t5"].parent.glob("*/evaluation.json")}
    assert len(evaluated) == 2
    report_of(models["t5"].parent)
    assert "measuring" not in capsys.readouterr().out
    assert {path: path.read_bytes() for path in evaluated} == evaluated


@pytest.mark.usefixtures("blank_pictures")
def test_learned_pictures_with_any_name(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Slashes, as TensorBoard's tags have them; and names that differ in nothing a file's name can hold."""
    from poslab.positions.t5 import T5

    pictures = T5.pictures
    monkeypatch.setattr(
        T5, "pictures", lambda self, *given: dict.fromkeys(("../a/b", "../a:b"), pictures(self, *given)["bias"])
    )
    folder = report_of(models["t5"].parent)
    names = {path.name for path in (folder / "figures").iterdir()}
    assert {"learned_t5____a_b.svg", "learned_t5____a_b_.svg"} <= names


@pytest.mark.usefixtures("no_figures")
def test_a_damaged_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a checkpoint, so that it can't be measured anew."""
    (write_run(tmp_path, "t5") / "evaluation.json").write_text("{")
    folder = report_of(tmp_path)
    assert "t5-seed1 is not evaluated by length and position: " in capsys.readouterr().err
    assert "t5-seed1 is not evaluated" in page_in(folder).lists[1][0]
    assert "longer windows" not in page_in(folder).rows[0]


@pytest.mark.usefixtures("blank_pictures")
def test_damaged_weights(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (models["t5"] / "evaluation.json").unlink()
    file = models["t5"] / "checkpoints" / "best.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    folder = report_of(models["t5"].parent)
    notes = capsys.readouterr().err
    assert f"{models['t5']} is not evaluated by length and position: ckpt={file}: " in notes
    assert f"t5 has no pictures of what it learned: ckpt={file}: " in notes
    assert [row[0] for row in page_in(folder).tables[0][1:]] == ["absolute", "t5"]


@pytest.mark.usefixtures("blank_pictures")
def test_code_from_outside_needs_permission(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = models["t5"].parent
    (root.parent / "their_scheme.py").write_text("from poslab.positions.t5 import T5 as Theirs\n")
    monkeypatch.syspath_prepend(str(root.parent))
    (models["t5"] / "evaluation.json").unlink()
    file = models["t5"] / "checkpoints" / "best.safetensors"
    content = read_checkpoint(file)
    content["poslab"]["config"]["pos"]["_target_"] = "their_scheme.Theirs"
    save_weights(file, content["state_dict"], content["poslab"])
    report_of(root)
    assert capsys.readouterr().err.count("allow_code=true") == 2  # neither evaluated nor drawn
    assert "their_scheme" not in sys.modules
    report_of(root, allow_code=True)
    assert "allow_code" not in capsys.readouterr().err
    assert "their_scheme" in sys.modules


@pytest.mark.usefixtures("blank_pictures")
def test_attention_on_a_sentence(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = report_of(models["t5"].parent, sentence="I had always thought Jack Gisburn")
    assert "attention" in (folder / "report.md").read_text()
    capsys.readouterr()
    (folder / "figures" / "attention.svg").unlink()
    report_of(models["t5"].parent, sentence="quarks and gluons")
    assert "t5 has no picture of its attention: sentence=quarks and gluons: " in capsys.readouterr().err
    assert not (folder / "figures" / "attention.svg").exists()
    assert (folder / "figures" / "learned_t5_bias.svg").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_attention_is_drawn_on_the_same_words_only(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the texts differ."""
    drawn = []
    monkeypatch.setattr(
        "poslab.comparison.learned.attention_figure", lambda maps, words: drawn.append([*maps]) or Figure()
    )
    words = {"absolute": [1, 2, 3], "t5": [1, 2]}
    monkeypatch.setattr("poslab.comparison.learned._read", lambda run, *_: (torch.tensor(words[run.summary.pos]), None))
    report_of(models["t5"].parent)
    assert drawn == [["absolute"]]
    assert "t5 has no picture of its attention: its text has other words" in capsys.readouterr().err


# Drift of learned tables

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
    assert drift(group_of(tmp_path).runs[0]).empty
    save_file({"bias": start}, files.start)
    save_file({"position_tables.bias": best, "token_embedding.weight": torch.zeros(3)}, files.best)
    (found,) = drift(group_of(tmp_path).runs[0]).itertuples()
    assert (found.numbers, found.start, found.still) == (4, 2.5, 0.75)
    assert found.moved == pytest.approx(0.003)
    assert found.of_most == pytest.approx(0.003 / (1e-3 * 10))
    table = drift_table([group_of(tmp_path)])
    assert table.rows == [["t5", "bias", "4", "2.5", "0.003", "30%", "75%"]]
    save_file({"bias": start[:1]}, files.start)
    assert drift_table([group_of(tmp_path)]) is None
    files.start.write_bytes(b"no tensors")
    assert drift_table([group_of(tmp_path)]) is None


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
