"""What a report measures and draws of runs' checkpoints, and what it says where it can't."""

import functools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from runs_to_compare import page_in, report_of, smoke_config, write_evaluation, write_run
from torch import Tensor

from poslab import GPT
from poslab.runs.checkpoint_files import describe, read_checkpoint, save_weights
from poslab.runs.evaluation import read_evaluation
from poslab.training.data.text import TextDataModule


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
    report_of(models["t5"].parent, measure=False)
    out = capsys.readouterr().out
    assert "\n- t5 and absolute were equal" in out
    assert not any(said in out for said in ("measuring", "\nnow "))
    assert not [*models["t5"].parent.glob("*/evaluation.json")]
    folder = report_of(models["t5"].parent)
    files = re.findall(r"figures/(\w+)\.svg", (folder / "report.md").read_text())
    shown = list(dict.fromkeys(re.sub(r"_\d$", "", file) for file in files))
    assert shown[:6] == ["results", "costs", "by_position", "by_length", "last", "attention"]  # and no empty curves
    assert {"learned_t5_bias", "learned_absolute_similarity"} <= set(shown[6:])
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if "no loss curve" not in line] == []
    measuring = "\nmeasuring 2 runs by length and position, about 0:"
    order = ("\nNo answer yet: ", "\n- t5 and absolute were equal", measuring, "\nreport ")
    places = [out.index(said) for said in order]
    assert places == sorted(places)
    assert "\nnow " not in out  # what was said before is not said again
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
    assert "t5-seed1 is not evaluated" in page_in(folder).lists[0][0]
    assert not any("longer windows" in cell for cell in page_in(folder).tables[0][1])


@pytest.mark.usefixtures("blank_pictures")
def test_damaged_weights(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (models["t5"] / "evaluation.json").unlink()
    file = models["t5"] / "checkpoints" / "best.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    folder = report_of(models["t5"].parent)
    notes = capsys.readouterr().err
    assert f"{models['t5']} is not evaluated by length and position: ckpt={file}: " in notes
    assert f"t5 has no pictures of what it learned: ckpt={file}: " in notes
    assert [row[0] for row in page_in(folder).results] == ["absolute", "t5"]


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
    (folder / "figures" / "attention_1.svg").unlink()
    report_of(models["t5"].parent, sentence="quarks and gluons")
    assert "t5 has no picture of its attention: sentence=quarks and gluons: " in capsys.readouterr().err
    assert not (folder / "figures" / "attention_1.svg").exists()
    assert (folder / "figures" / "learned_t5_bias.svg").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_attention_is_drawn_on_the_same_words_only(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the texts differ."""
    drawn = []
    monkeypatch.setattr(
        "poslab.comparison.learned.attention_panels",
        lambda maps, words, colours: (drawn.append([*maps]), ([Figure()], 1.0))[1],
    )
    words = {"absolute": [1, 2, 3], "t5": [1, 2]}
    monkeypatch.setattr("poslab.comparison.learned._read", lambda run, *_: (torch.tensor(words[run.summary.pos]), None))
    report_of(models["t5"].parent)
    assert drawn == [["absolute"]]
    assert "t5 has no picture of its attention: its text has other words" in capsys.readouterr().err
