"""scripts/evaluate.py: its table and files, and what it refuses."""

import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from common import ALIBI, ENDING, ENDLESS, RunScript, assert_refused
from corpora import VERDICT
from runs_to_evaluate import make_run, mean

from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.checkpoint_files import read_checkpoint, save_weights
from poslab.runs.evaluation import read_evaluation


@pytest.fixture
def runs(made: Callable[..., Path]) -> dict[str, Path]:
    return {name: made(f"pos={name}") for name in (ENDLESS, ENDING)}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A run that a test may change."""
    return shutil.copytree(runs[ENDLESS], tmp_path / "run")


@pytest.mark.parametrize(
    ("command", "settings", "problem"),
    [
        ("evaluate", "", "last.ckpt: its losses are not finite: its training diverged"),
        ("generate", "prompt=the", "the model's logits are not finite: its training diverged"),
    ],
)
def test_no_figure_or_text_of_a_model_that_diverged(
    command: str, settings: str, problem: str, run_script: RunScript, run: Path
) -> None:
    last = run / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    content["state_dict"]["model.final_norm.bias"].fill_(float("nan"))
    torch.save(content, last)
    assert_refused(run_script(command, f"ckpt={last}", *settings.split()), problem)


@pytest.mark.parametrize("name", [ENDLESS, ENDING])
def test_table(name: str, script: RunScript, runs: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(runs[name], tmp_path / "run")
    code, output, errors = script("ckpt=run", "lengths=[16,32,128,1024]", "stride=8", "device=cpu")
    assert (code, errors) == (0, "")
    assert "validation part; at every length, the same 533 tokens count" in output
    rows = {cells[0]: cells[1:] for line in output.splitlines() if (cells := line.split())}
    assert f"({name}, trained on 32 tokens)" in output
    found = read_evaluation(folder)
    assert found is not None
    for result in found.lengths[:2]:
        losses = result.by_position
        assert losses is not None
        ends = [mean(losses[: result.length // 8]), mean(losses[-result.length // 8 :])]
        loss, perplexity, sliding_loss, _, stride, *rest = rows[str(result.length)]
        assert (loss, sliding_loss, stride) == (f"{result.loss:.4f}", f"{result.sliding_loss:.4f}", "8")
        assert perplexity == f"{math.exp(result.loss or 0):,.1f}"
        assert rest == [f"{loss:.4f}" for loss in [*ends, result.last_loss]]
    if name == ENDLESS:
        assert rows["128"][0] == f"{found.lengths[2].loss:.4f}"
        assert rows["128"][7:] == [f"{found.last_losses[128]:.4f}", f"{found.context_gains[128]:+.4f}"]
        assert found.context_gains[128] == found.last_losses[32] - found.last_losses[128]
        assert rows["1024"] == [*["n/a"] * 9, "the", "text", "has", "534", "tokens"]
    else:
        assert rows["128"] == rows["1024"] == [*["n/a"] * 9, "knows", "32", "positions"]
    assert "last: loss of the last 16 tokens of windows that end at the same places" in output
    assert "written     run/evaluation.json" in output


def test_usual_lengths_and_the_same_again(script: RunScript, run: Path) -> None:
    assert script(f"ckpt={run}")[0] == 0
    first = (run / "evaluation.json").read_bytes()
    found = read_evaluation(run)
    assert found is not None
    assert {result.length: result.stride for result in found.lengths} == {8: 4, 16: 8, 32: 16, 64: 32, 128: 64}
    assert script(f"ckpt={run}")[0] == 0
    assert (run / "evaluation.json").read_bytes() == first


def test_other_texts_and_checkpoints_have_files_of_their_own(script: RunScript, run: Path, tmp_path: Path) -> None:
    (tmp_path / "my text.txt").write_text("I HAD always thought Jack Gisburn rather a cheap genius")
    best, last = run / "checkpoints" / "best.safetensors", run / "checkpoints" / "last.ckpt"
    (tmp_path / "moved.ckpt").write_bytes(last.read_bytes())
    cases = {
        (f"ckpt={best}",): run / "evaluation.json",
        (f"ckpt={last}",): run / "evaluation-last.json",
        (f"ckpt={run}", "data_path=my text.txt"): run / "evaluation-my_text.txt.json",
        ("ckpt=moved.ckpt",): tmp_path / "evaluation-moved.json",
    }
    for number, (arguments, file) in enumerate(cases.items()):
        code, _, errors = script(*arguments, "lengths=[4]")
        assert (code, errors) == (0, "")
        assert file.exists()
        assert len(list(tmp_path.rglob("evaluation*.json"))) == number + 1
    best.unlink()
    assert f"checkpoint  {last} " in script(f"ckpt={run}", "lengths=[4]")[1]


def test_another_text_is_tokenised_whole(script: RunScript, run: Path, tmp_path: Path) -> None:
    """A cut would make tokens of half words, which the observed vocabulary may not have."""
    text = "I HAD always thought Jack Gisburn rather a cheap genius"
    (tmp_path / "other.txt").write_text(text)
    code, output, errors = script(f"ckpt={run}", "data_path=other.txt", "lengths=[4]")
    assert (code, errors) == (0, "")
    count = len(load_checkpoint(run / "checkpoints" / "last.ckpt").vocabulary.encode(text))
    assert f"text        other.txt; at every length, the same {count - 1} tokens count" in output
    # The text trained on is cut in two as it was then: in one piece it has a word that the vocabulary has not.
    code, output, errors = script(f"ckpt={run}", f"data_path={VERDICT}", "lengths=[32]", "stride=32")
    assert (code, errors) == (0, "")
    assert "at every length, the same 5,145 tokens count" in output


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("last=33", "last=33: must be at most 32, the training length"),
        ("data_path=zebras.txt", "data_path=zebras.txt: the model knows only the 1,417 tokens of the text it was"),
        ("data_path=texts", "'<|endoftext|>'"),
        ("ckpt=missing", "ckpt=missing: no such file, nor a run folder with a checkpoint"),
        ("ckpt=texts", "ckpt=texts: no such file, nor a run folder with a checkpoint"),
        pytest.param(
            "device=cuda",
            "device=cuda: torch sees no GPU; valid here: auto, cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_arguments(argument: str, message: str, script: RunScript, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in {"texts/a": "I HAD", "texts/b": "I HAD", "zebras": "I HAD zebras"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    assert_refused(script(f"ckpt={runs[ENDLESS]}", argument), message)  # the second of two ckpt= counts
    assert not list(runs[ENDLESS].glob("evaluation*"))


def test_text_gone_or_changed_since_training(script: RunScript, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(VERDICT.read_text())
    overrides = ("data=text", f"data.path={text}", f"data.cache_dir={tmp_path}/cache")
    run = make_run(tmp_path / "run", *overrides)
    assert script(f"ckpt={run}", "lengths=[8]")[0] == 0
    for changed in (VERDICT.read_bytes() + b"More.", b"\xff\xfe\x00"):
        text.write_bytes(changed)
        assert_refused(
            script(f"ckpt={run}"), f"{text} is not the text any more that it was trained on; name one with data_path"
        )
    text.unlink()
    assert_refused(script(f"ckpt={run}"), "it was trained on can't be read")


def test_a_text_that_is_not_the_one_trained_on_is_not_stored(
    script: RunScript, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint may name any file of its user's."""
    (tmp_path / "private.txt").write_text("I HAD always thought " * 100)
    content = read_checkpoint(run / "checkpoints" / "last.ckpt")
    content["poslab"]["config"]["data"]["path"] = str(tmp_path / "private.txt")
    save_weights(run / "checkpoints" / "best.safetensors", content["state_dict"], content["poslab"])
    monkeypatch.setattr("poslab.evaluation.files.default_cache_dir", lambda: tmp_path / "cache")
    assert_refused(script(f"ckpt={run}"), "private.txt is not the text any more that it was trained on")
    assert not (tmp_path / "cache").exists()


def test_schemes_from_outside_are_imported_only_if_allowed(
    script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "scheme_of_an_evaluation"
    (tmp_path / f"{module}.py").write_text(f"{ALIBI}\nimport pathlib\npathlib.Path('imported').touch()\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        run = make_run(tmp_path / "run", "pos=own", f"pos._target_={module}.MyALiBi")
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(sys.modules, module)
    assert_refused(
        script(f"ckpt={run}"), f"its scheme is {module}.MyALiBi, which is none of poslab's parts; allow_code=true"
    )
    assert not (tmp_path / "imported").exists()
    code, output, errors = script(f"ckpt={run}", "lengths=[64]", "allow_code=true")
    assert (code, errors) == (0, "")
    assert "(myalibi, trained on 32 tokens)" in output
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").unlink()
    assert_refused(script(f"ckpt={run}", "allow_code=true"), f"pos._target_={module}.MyALiBi: can't be imported")


def test_a_folder_that_cannot_be_written(script: RunScript, run: Path) -> None:
    (run / "evaluation.json").mkdir()
    code, output, errors = script(f"ckpt={run}", "lengths=[8]")
    assert (code, errors.count("\n")) == (0, 1)
    assert errors.startswith(f"note: {run}/evaluation.json can't be written: ")
    assert "sliding loss" in output  # the figures are what was asked for
    assert "written" not in output
