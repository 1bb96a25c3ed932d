"""A trained model with other settings of its scheme: where its tables fit, and never taken for the one trained."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from common import ALIBI, SMOKE, RunScript, assert_refused

from poslab import load
from poslab.errors import SettingError
from poslab.positions.randomized import Randomized
from poslab.positions.rope import RoPE
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.evaluation import read_evaluation

YARN = ("pos.scaling=yarn", "pos.factor=4", "pos.original_context=32")
RunFolderOf = Callable[..., Path]


@pytest.fixture
def run(trained: RunFolderOf, tmp_path: Path) -> Path:
    """Trained with plain RoPE."""
    shutil.copytree(trained(*SMOKE, "pos=rope"), tmp_path / "run")
    return tmp_path / "run"


def test_an_evaluation_says_what_was_trained_and_has_a_file_of_its_own(run: Path, run_script: RunScript) -> None:
    code, plain, _ = run_script("evaluate", f"ckpt={run}", "lengths=[32,64]")
    ordinary = (run / "evaluation.json").read_bytes()
    code, output, errors = run_script("evaluate", f"ckpt={run}", "lengths=[32,64]", *YARN)
    assert (code, errors) == (0, "")
    said = "pos.scaling=yarn pos.factor=4.0 pos.original_context=32 "
    said += "(trained with pos.scaling=none pos.factor=1.0 pos.original_context=256)"
    assert said in output
    assert said not in plain
    assert (run / "evaluation.json").read_bytes() == ordinary
    file = run / "evaluation-scaling_yarn-factor_4.0-original_context_32.json"
    assert f"written     {file}" in output
    written, before = json.loads(file.read_text()), json.loads(ordinary)
    assert written["settings"] == {"scaling": "yarn", "factor": 4.0, "original_context": 32}
    assert written["trained_with"] == {"scaling": "none", "factor": 1.0, "original_context": 256}
    assert not {"settings", "trained_with"} & before.keys()
    assert written["weights_sha256"] == before["weights_sha256"]
    assert written["lengths"] != before["lengths"]
    run_script("evaluate", f"ckpt={run}", "lengths=[16]", *YARN)
    assert [result.length for result in read_evaluation(run, file=file.name).lengths] == [16, 32, 64]
    run_script("evaluate", f"ckpt={run}", "lengths=[16]", *YARN[:1], "pos.factor=2")
    assert (run / "evaluation-scaling_yarn-factor_2.0.json").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("pos=nope", "pos=nope (trained with pos=rope)"),
        ("pos._target_=nope", "pos=nope (trained with pos=rope)"),
        ("pos.base=1e4 pos.scaling=none", ""),  # as it was trained
    ],
)
def test_what_is_other_than_in_training_is_said(asked: str, said: str, run: Path, run_script: RunScript) -> None:
    code, output, errors = run_script("evaluate", f"ckpt={run}", "lengths=[32]", *asked.split())
    assert (code, errors) == (0, "")
    assert said in output
    assert ("trained with" in output) == bool(said)
    assert (run / "evaluation.json").exists() != bool(said)


def test_a_wrapper_is_put_around_what_was_trained(run: Path, run_script: RunScript) -> None:
    asked = ("evaluate", f"ckpt={run}", "lengths=[32,64]", "pos=scaled")
    code, output, errors = run_script(*asked, "pos.kind=length")
    assert (code, errors) == (0, "")
    assert "settings    pos=scaled pos.of=rope pos.kind=length (trained with pos=rope)\n" in output
    assert (run / "evaluation-pos_scaled-of_rope-kind_length.json").exists()
    assert_refused(run_script(*asked), "needs the learned tables scaled_slope")
    _, given, _ = run_script(*asked, "pos.kind=length", "pos.of=nope")
    assert "pos=scaled pos.of=nope pos.kind=length (trained with pos=rope)" in given


def test_generation_says_it_beside_the_text(run: Path, run_script: RunScript) -> None:
    asked = ("generate", f"ckpt={run}", "prompt=I had", "max_new_tokens=8", "temperature=0")
    code, text, errors = run_script(*asked, *YARN)
    assert code == 0
    assert errors.startswith("note: pos.scaling=yarn pos.factor=4.0 pos.original_context=32 (trained with pos.scaling")
    assert "trained with" not in text
    assert "trained with" not in run_script(*asked)[2]


def test_what_the_scheme_says_of_them_is_said(run: Path, run_script: RunScript) -> None:
    _, _, errors = run_script("evaluate", f"ckpt={run}", "lengths=[16]", *YARN[:2])
    assert errors.startswith("warning: pos.original_context=256: this model's context is 32, neither that nor")


@pytest.mark.parametrize(
    ("script", "setting", "problem"),
    [
        ("evaluate", "pos.scaling=yrn", "pos.scaling=yrn: unknown; did you mean yarn?"),
        ("generate", "pos.fraction=0.01", "pos.fraction=0.01: leaves no pair of 16 channels that turns"),
        ("evaluate", "pos=t5", "pos=t5: needs the learned tables bias (32, 2); this run learned none"),
    ],
)
def test_refused_in_one_line(script: str, setting: str, problem: str, run: Path, run_script: RunScript) -> None:
    needed = {"evaluate": (), "generate": ("prompt=I",)}[script]
    assert_refused(run_script(script, f"ckpt={run}", *needed, setting), problem)
    assert not list(run.glob("evaluation*"))


def test_tables_of_other_shapes_are_refused(trained: RunFolderOf) -> None:
    run = trained(*SMOKE, "pos=t5")
    needs = r"needs the learned tables bias \(16, 2\); this run learned bias \(32, 2\)"
    with pytest.raises(SettingError, match=rf"^pos\.num_buckets=16: {needs}"):
        load(run, settings={"num_buckets": 16})
    tokens = torch.arange(32)[None]
    assert not torch.equal(load(run)(tokens), load(run, settings={"scale": 3.0})(tokens))


def test_settings_of_a_scheme_within(trained: RunFolderOf) -> None:
    run = trained(*SMOKE, "pos=randomized", "pos.max_position=64")
    assert load(run, settings={"of.base": 500}).pos == Randomized(RoPE(500.0), 64)
    checkpoint = load_checkpoint(run, settings={"of": "nope"})
    assert checkpoint.settings_in_words == "pos.of=nope (trained with pos.of=rope)"


def test_a_class_that_is_named_may_be_imported(
    trained: RunFolderOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_here.py").write_text(ALIBI)
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(*SMOKE, "pos=rope")
    assert type(load(run, settings={"_target_": "named_here.MyALiBi"}).pos) is sys.modules["named_here"].MyALiBi
