"""Help when something looks wrong: --info, debug=overfit, and the traceback of an unexpected error."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from common import REPOSITORY, RICHEST, SCHEMES, SMOKE, compose_config
from processes import run_process

from poslab.commands import info
from poslab.errors import RunStopped
from poslab.training.train import train

BROKEN = '''
import inspect
from dataclasses import dataclass
from poslab.positions import PositionScheme

@dataclass(frozen=True)
class Broken(PositionScheme):
    """Breaks at the first training step, and not when it is tried."""

    def embed(self, tables, x, positions):
        in_training = any(frame.function == "training_step" for frame in inspect.stack())
        return 1 // 0 if in_training else x
'''


def test_an_unexpected_error_has_its_traceback_and_how_to_resume(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    result = run_process("train", *SMOKE, "pos=own", "pos._target_=broken.Broken", "run_dir=run", cwd=tmp_path)
    assert result.returncode == 1
    *story, error, hint = result.stderr.strip().splitlines()
    assert any('broken.py", line 12, in embed' in line for line in story)
    assert error == "ZeroDivisionError: integer division or modulo by zero"
    assert hint.startswith("Resume the run with: ")
    assert hint.endswith("scripts/train.py resume=run allow_code=true")


SMALL = ("model.embed_dim=64", "model.num_layers=1", "model.context_length=16", "optim.learning_rate=1e-2")


def test_one_batch_is_learned_by_heart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = vars(train(compose_config("debug=overfit", f"pos={RICHEST}", *SMALL, f"run_dir={tmp_path / 'run'}")))
    assert 10 < summary["steps"] < 300
    printed = capsys.readouterr().out
    assert re.search(rf"learned  training loss 0\.00\d+ after {summary['steps']} steps, below 0\.01", printed)
    assert "val loss" not in printed


def test_a_model_that_does_not_learn_is_told(tmp_path: Path) -> None:
    settings = ("debug=overfit", *SMALL, "trainer.max_steps=3", f"run_dir={tmp_path / 'run'}")
    with pytest.raises(RunStopped, match=r"target_loss=0\.01: .*\b3 steps"):
        train(compose_config(*settings))


def test_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info.print_info()
    printed = capsys.readouterr().out
    assert re.search(rf"torch +{re.escape(version('torch'))}", printed)
    assert printed.count("as published") == 4
    assert all(re.search(rf"{name} +(sdpa|blockwise|reference)", printed) for name in SCHEMES)
    (tmp_path / "README.md").write_text((REPOSITORY / "data" / "README.md").read_text())
    (tmp_path / "the-verdict.txt").write_text("something else")
    monkeypatch.setattr(info, "BUNDLED_DATA", tmp_path)
    monkeypatch.setattr(info, "_backends", lambda: {"any": "reference"})
    info.print_info()
    printed = capsys.readouterr().out
    assert re.search("the-verdict.txt +CHANGED", printed)
    assert printed.count("No such file") == 3
