"""The fingerprints of code: what changes them, and that no run resumes, or is used, with other code unnoticed."""

import importlib
import inspect
import json
import sys
from pathlib import Path

import pytest
from common import ALIBI, SOUND, compose_config, make_scheme
from runs_to_resume import TINY, content_of, resume

from poslab import load, positions
from poslab.commands.explain import run_explanation
from poslab.config.scripts import ExplainConfig
from poslab.errors import SettingError
from poslab.evaluation.files import evaluate_run
from poslab.positions import PositionScheme
from poslab.positions.rope import RoPE
from poslab.positions.rope_t5 import RoPET5
from poslab.runs import code
from poslab.tasks.addition import Addition
from poslab.tasks.transcription import Copy
from poslab.training.train import train


def scheme_in(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str = "my_file.MyALiBi") -> type:
    """Load the class anew from the files in `folder`, as a new process would."""
    module, name = target.rsplit(".", 1)
    own = ("my_file", "pack", "slopes", "tables", "poslab.positions.my_file")
    for loaded in [m for m in sys.modules if m.startswith(own)]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(positions, "__path__", [*positions.__path__, str(folder)])
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within one second would not be seen
    found: type = getattr(importlib.import_module(module), name)
    return found


def fingerprint(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str = "my_file.MyALiBi") -> str | None:
    with monkeypatch.context() as patch:
        return code.scheme_fingerprint(scheme_in(folder, patch, target))


def test_what_a_file_holds_counts_and_not_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my_file.py"
    file.write_text(ALIBI)
    before = fingerprint(tmp_path, monkeypatch)
    assert before is not None
    assert fingerprint(tmp_path, monkeypatch, "poslab.positions.my_file.MyALiBi") == before
    file.write_text(ALIBI.replace("bias = -slopes", "bias = slopes"))
    assert fingerprint(tmp_path, monkeypatch) != before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "my_file.py").write_text(ALIBI)
    assert fingerprint(elsewhere, monkeypatch) == before


@pytest.mark.parametrize(
    ("edited", "counts"),
    [
        ("slopes.py", True),
        ("pack/base.py", True),
        ("pack/tables.py", True),
        ("pack/__init__.py", True),
        ("pack/other.py", False),
        ("unused.py", False),
    ],
)
def test_bases_and_imported_modules_beside_a_scheme_count(
    edited: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "my_file.py").write_text("from pack.base import Base\nclass Scheme(Base): pass\n")
    (tmp_path / "pack" / "base.py").write_text(
        "import torch\nfrom poslab.positions import PositionScheme\nfrom . import tables\n"
        "class Base(PositionScheme):\n    def check(self, shape):\n        import slopes\n"
    )
    for name in ("slopes.py", "unused.py", "pack/tables.py", "pack/other.py", "pack/__init__.py"):
        (tmp_path / name).write_text("x = 1\n")
    before = fingerprint(tmp_path, monkeypatch, "my_file.Scheme")
    with (tmp_path / edited).open("a") as opened:
        opened.write("y = 2\n")
    assert (fingerprint(tmp_path, monkeypatch, "my_file.Scheme") != before) is counts


def test_a_class_without_a_file_has_none() -> None:
    assert code.scheme_fingerprint(type("Typed", (PositionScheme,), {"__module__": "nowhere"})) is None


def test_schemes_of_poslab_have_fingerprints_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none counts as the code that all have in common: adding a scheme makes no other run another's."""
    schemes = [type(make_scheme(name)) for name in SOUND]
    files = {Path(inspect.getfile(scheme)).name for scheme in schemes}
    assert len({code.scheme_fingerprint(scheme) for scheme in schemes}) == len(files)
    hashed: set[Path] = set()
    monkeypatch.setattr(code, "_hash", lambda files: hashed.update(files) or "hash")
    code.code_fingerprint.__wrapped__()
    inside = {file.relative_to(code._ROOT).as_posix() for file in hashed}
    shared = {"positions/base.py", "model/decoder.py", "model/memory/segments.py", "training/module.py"}
    assert shared | {"attention/kernels/blockwise.py", "tasks/base.py", "metric.py", "processors.py"} <= inside
    assert {"evaluation/losses.py", "evaluation/stream_losses.py", "evaluation/task_metrics.py"} <= inside
    assert not any(f"positions/{file}" in inside for file in files)
    assert "tasks/transcription.py" not in inside


@pytest.mark.parametrize(
    ("cls", "files"),
    [
        (RoPE, {"rope.py", "rotary.py"}),
        (RoPET5, {"rope_t5.py", "combined.py", "nope.py", "rope.py", "rotary.py", "t5.py"}),
        (Addition, {"addition.py", "transcription.py"}),
    ],
)
def test_what_schemes_and_tasks_of_poslab_import_counts_without_the_contract(cls: type, files: set[str]) -> None:
    assert {file.name for file in code.source_files(cls)} == files


def test_another_source_makes_another_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(inspect.getfile(Copy)).read_text()
    file = tmp_path / "my_file.py"
    hashes = []
    settings = vars(compose_config("data=copy").data)
    for text in (source, source, source + "# edited"):
        file.write_text(text)
        with monkeypatch.context() as patch:
            hashes.append(code.task_sha256(scheme_in(tmp_path, patch, "my_file.Copy")(**settings)))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("module", ["my_file", "poslab.positions.my_file"])
def test_a_run_does_not_resume_with_an_edited_scheme(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{module}.MyALiBi"
    file, run = tmp_path / "my_file.py", tmp_path / "run"
    file.write_text(ALIBI)
    with monkeypatch.context() as patch:
        scheme_in(tmp_path, patch, target)
        train(compose_config(*TINY, "pos=own", f"pos._target_={target}", f"run_dir={run}"))
        capsys.readouterr()
        load(run, allow_code=True)
        assert capsys.readouterr().err == ""
    file.write_text(ALIBI.replace("bias = -slopes", "bias = slopes"))
    before = content_of(run)
    with monkeypatch.context() as patch:
        scheme_in(tmp_path, patch, target)
        message = rf"run: the code of {target} has changed since step \d+; a new run trains the new code"
        with pytest.raises(SettingError, match=message):
            resume(run, "trainer.max_epochs=3", "allow_code=true")
        assert content_of(run)["state"]["step"] == before["state"]["step"]
        with pytest.raises(SettingError, match="losses"):
            evaluate_run(run, allow_code=True)
        with pytest.raises(SettingError, match="losses"):
            run_explanation(ExplainConfig(ckpt=[str(run)], allow_code=True), "")
        assert not list(run.glob("ev*.json")) + list(run.glob("ex*.html"))
        capsys.readouterr()
        load(run, allow_code=True)
    assert "warning: " in (warned := capsys.readouterr().err)
    assert f"the code of {target} has changed since it was trained" in warned


def test_a_run_that_resumes_with_other_code_of_poslab_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train(compose_config(*TINY, "pos=t5", f"run_dir={tmp_path}/run")).code_fingerprint
    monkeypatch.setattr(code, "code_fingerprint", lambda: "0123456789abcdef")
    resume(tmp_path / "run", "trainer.max_epochs=3")
    assert "warning: poslab's code has changed since step" in capsys.readouterr().err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["code_fingerprint"] == f"{first}+0123456789abcdef"
    resume(tmp_path / "run", "trainer.max_epochs=4")
    assert "code has changed" not in capsys.readouterr().err


NORM = """
import torch

class Mine(torch.nn.RMSNorm):
    def forward(self, x):
        return 1.0 * super().forward(x)
"""


def test_an_edited_part_of_the_block_gives_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "my_file.py", tmp_path / "run"
    file.write_text(NORM)
    with monkeypatch.context() as patch:
        scheme_in(tmp_path, patch, "my_file.Mine")
        train(compose_config(*TINY, "model.norm._target_=my_file.Mine", f"run_dir={run}"))
        capsys.readouterr()
        assert evaluate_run(run, allow_code=True)
        load(run, allow_code=True)
        assert capsys.readouterr().err == ""
    (run / "evaluation.json").unlink()
    file.write_text(NORM.replace("1.0", "3.0"))
    code.scheme_fingerprint.cache_clear()
    scheme_in(tmp_path, monkeypatch, "my_file.Mine")
    with pytest.raises(SettingError, match=r"my_file\.Mine has changed"):
        evaluate_run(run, allow_code=True)
    assert not (run / "evaluation.json").exists()
    capsys.readouterr()
    load(run, allow_code=True)
    assert "the code of my_file.Mine has changed since it was trained" in capsys.readouterr().err
