"""Bad configuration: one line that names option, value and what is valid, exit code 2, torch not loaded, no files."""

import json
import subprocess
import sys
from pathlib import Path

from common import REPOSITORY, SCHEMES, compose_config

from poslab.config.files import CONFIGS
from poslab.config.schemes import scheme_settings
from poslab.errors import suggestion

TRAIN = REPOSITORY / "scripts" / "train.py"

# What is typed, and what the one line must contain.
BAD = [
    ("pos=t6", "pos=t6: unknown; did you mean "),
    ("data=verdikt", "did you mean verdict?"),
    ("pos=[shaw,t5]", "pos=[shaw,t5]"),
    ("pos=", f"valid: {', '.join(SCHEMES)}"),
    ("po=t5", "po=t5: unknown setting; did you mean pos?"),
    ("model.context_lenght=64", "did you mean model.context_length"),
    ("+model.foo=1", "model.foo=1: unknown setting; valid: context_length"),
    ("pos=shaw +pos.num_buckets=8", "pos.num_buckets=8: unknown setting; valid: max_distance"),
    ("pos=nope +pos.x=1", "pos.x=1: unknown setting; there are none here"),
    ("pos.num_bucket=4", "pos.num_bucket=4: unknown setting; valid: random_offset, max_positions"),
    ("+foo=1", "foo=1: unknown setting"),
    ("foo", "foo: not of the form option=value"),
    ("model.embed_dim=wide", "model.embed_dim=wide: must be a whole number"),
    ("model.num_heads=3", "model.num_heads=3: must divide embed_dim=256"),
    ("model.attention_backend=flash", "model.attention_backend=flash: unknown"),
    ("data.batch_size=true", "data.batch_size=true: must be a whole number"),
    ("data.path=missing.txt", "data.path=missing.txt: no such file, folder or glob match"),
    ("data=text", "data.path=: must be given (text)"),
    ("data.encoding=gtp2", "data.encoding=gtp2: unknown; did you mean gpt2?"),
    ("evaluation.last=300", "evaluation.last=300: must be at most model.context_length=256"),
    ("pos=t5 pos.num_buckets=1", "pos.num_buckets=1: must be at least 2"),
    ("pos=t5 pos.max_distance=16", "pos.max_distance=16: must be above 16, the exact half of 32 buckets"),
    ("pos=t5 pos.scale=inf", "pos.scale=inf: must be a finite number"),
    ("pos=shaw pos.max_distance=0", "pos.max_distance=0: must be at least 1"),
    ("pos=shaw pos.keys=maybe", "pos.keys=maybe: must be true or false"),
    ("pos=shaw pos.keys=false pos.values=false", "pos.keys=false"),
    ("pos._target_=nowhere.Scheme", "pos._target_=nowhere.Scheme: can't be imported"),
    ("pos._target_=pathlib.Path", "pos._target_=pathlib.Path: must be a class derived from"),
    ("optim.learning_rate=fast", "optim.learning_rate=fast: must be a number"),
    ("optim.learning_rate=nan", "optim.learning_rate=nan: must be a finite number"),
    ("trainer.precision=fp16", "trainer.precision=fp16: unknown; valid: 32-true"),
    ("trainer.max_epochs=null", "trainer.max_epochs=null: set max_epochs or max_steps"),
    ("trainer.max_steps=0", "trainer.max_steps=0: must be at least 1"),
    ("seed=4294967296", "seed=4294967296: must be below 4294967296"),
    ("seed=one", "seed=one: must be a whole number"),
    ("seed=1,2", "seed=1,2: must be one value; -m runs each of several"),
    ("model=5", "model=5"),
    ("data=task", "data._target_=: must be given"),
    ("model.memory_length=1000001", "model.memory_length=1000001: must be at most 1000000"),
    ("seed=${nothing}", "seed=${nothing}: Interpolation key 'nothing' not found"),
    ("run_dir=\udcff", "run_dir=?: must be text in UTF-8"),
]

OF_SCRIPTS = [
    ("compare", "effect=0", "effect=0: must be above 0"),
    ("compare", "rnus=x", "rnus=x: unknown setting; did you mean runs?"),
    ("evaluate", "", "ckpt=: must be given (text)"),
    *((name, "-pos=t5", "-pos=t5: unknown flag; --help shows") for name in ("train", "compare", "evaluate", "explain")),
    ("generate", "-m", "-m: unknown flag"),
]
LINES = [("train", typed, expected) for typed, expected in BAD] + OF_SCRIPTS

# Runs all command lines in one interpreter, in which torch can't be imported.
WITHOUT_TORCH = """
import contextlib, io, json, runpy, sys
sys.modules["torch"] = None
folder, ends = sys.argv[1], []
for name, *arguments in json.load(sys.stdin):
    sys.argv = [f"{folder}/{name}.py", *arguments]
    streams, code = (io.StringIO(), io.StringIO()), 0
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    ends.append((code, *(stream.getvalue() for stream in streams)))
print(json.dumps(ends))
"""


def run_without_torch(folder: Path, *lines: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of scripts with arguments, run in `folder`."""
    command = [sys.executable, "-c", WITHOUT_TORCH, str(REPOSITORY / "scripts")]
    done = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, cwd=folder, check=True)
    return json.loads(done.stdout)


def test_one_line_before_torch(tmp_path: Path) -> None:
    ends = run_without_torch(tmp_path, *((name, *typed.split()) for name, typed, _ in LINES))
    for (_, typed, expected), (code, output, complaint) in zip(LINES, ends, strict=True):
        assert (code, output, complaint.count("\n")) == (2, "", 1), (typed, complaint)
        assert complaint.startswith("error: ")
        assert expected in complaint
    assert list(tmp_path.iterdir()) == []


def test_help_before_torch(tmp_path: Path) -> None:
    plain, chosen = run_without_torch(
        tmp_path, ("train", "--help"), ("train", "pos=randomized", "pos.of=t5", "pos.of.num_buckets=16", "--help")
    )
    assert (plain[0], plain[2]) == (0, "")
    assert f"pos: {', '.join(SCHEMES)}" in plain[1]
    for group in CONFIGS.iterdir():
        if group.is_dir():
            assert f"{group.name}: " in plain[1]
    for text in ("context_length: 256", "learning_rate: ", "scripts/train.py pos=t5"):
        assert text in plain[1]
    assert "  of:\n    _target_: t5\n    num_buckets: 16\n  max_position: " in chosen[1]
    assert list(tmp_path.iterdir()) == []


def test_every_option_composes() -> None:
    """Those of `pos` are composed wherever a scheme is trained."""
    options = [f"{path.parent.name}={path.stem}" for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "pos"]
    assert len(options) > 10
    lengths = ("data.min_length=1", "data.max_length=4", "data.test_lengths=[4]")
    needs = {"data=text": (f"data.path={TRAIN}",), "data=task": ("data._target_=poslab.tasks.parity.Parity", *lengths)}
    for option in options:
        assert compose_config(option, *needs.get(option, ()))


def test_text_defaults_to_no_overlap() -> None:
    assert compose_config("data=text", f"data.path={TRAIN}").data.stride is None
    assert compose_config("data=verdict").data.stride is not None


def test_no_scheme_setting_is_missing_in_the_common_keys() -> None:
    assert {"pos.num_buckets", "pos.max_distance", "pos.keys"} <= set(scheme_settings())
    assert set(scheme_settings().values()) == {"n/a"}


def test_suggestions() -> None:
    assert suggestion("shw", ["absolute", "shaw"]) == "did you mean shaw? valid: absolute, shaw"
    assert suggestion("zzz", ["absolute", "shaw"]) == "valid: absolute, shaw"
