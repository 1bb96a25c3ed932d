"""Values that a setting can't take: one line that names both, and nothing else happens.

Each way in which a type or a limit rules out a value is tried once where it is checked; what only shows when files are
read, by whole scripts.
"""

import dataclasses
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from common import RunScript, compose_config
from runs_to_evaluate import Malicious
from runs_to_resume import TINY

from poslab.checked import Limits
from poslab.config.command_line import parse_line
from poslab.config.schema import Settings
from poslab.config.scripts import CompareConfig, EvaluateConfig, ExplainConfig, GenerateConfig
from poslab.errors import SettingError

SCRIPTS = {"evaluate": EvaluateConfig, "compare": CompareConfig, "explain": ExplainConfig, "generate": GenerateConfig}
# What each script needs beside the option at hand.
NEEDED = {
    "train": (*TINY, "trainer.max_epochs=1"),
    "evaluate": ("ckpt=run",),
    "compare": ("runs=run",),
    "explain": ("ckpt=run",),
    "generate": ("ckpt=run", "prompt=I had"),
}
# By kind of type and of limit.
WRONG = {
    "train": """
        data.batch_size=many data.batch_size=2.5 data.batch_size=[1] data.batch_size=null data.batch_size=0
        schedule.warmup_share=many schedule.warmup_share=nan schedule.warmup_share=inf schedule.warmup_share=[1]
        schedule.warmup_share=null schedule.warmup_share=-0.1 schedule.warmup_share=1
        model.init_std=0 model.compile=perhaps model.compile=2 model.retrieval=many
        evaluation.lengths=many evaluation.lengths=[a] evaluation.lengths=null evaluation.lengths=[0]
        schedule.final_share=1.1 optim.learning_rate=-1 data.order=nothing threads=1025 seed=4294967296
        model.context_length=0 model.embed_dim=0 model.num_layers=0 model.num_heads=0 model.num_heads=3
        data.path=nowhere.txt data.path= data.path=no*thing data.encoding=gpt7 data.encoding=5
        trainer.max_epochs=null trainer.max_steps=0 trainer.max_steps=-3 trainer.limit_train_batches=1.5
        trainer.limit_train_batches=true trainer.limit_val_batches=1.5 trainer.val_check_interval=1.5
    """,
    "evaluate": "last=many last=0 allow_code=2 device=nothing model.memory_length=-1 model.memory_length=x model.no=5",
    "compare": "effect=0 pairs=nothing length=2.5",
    "explain": "ckpt=[] ckpt=[a,b,c] threads=1025",
    "generate": "prompt= top_p=1.1 top_p=nan seed=null samples=1001",
}
# Of schemes, as scheme.setting=value.
OF_SCHEMES = """
    cope.max_positions=1 deberta.max_distance=0 fire.width=0 fire.init_c=0 fire.init_c=inf fire.init_threshold=-1
    fire.init_threshold=nan forgetting.init_bias=nan kerple.kernel=exponential rope.base=1 rope.fraction=0
    rope.fraction=1.5 rope.fraction=0.01 rope.scaling=yran rope.factor=0.5 rope.original_context=0 layers.layers=[]
    layers.layers=rope sandwich.dimensions=7
    sandwich.dimensions=0 shaw.max_distance=0 sinusoidal.base=0 sinusoidal.amplitude=0 t5.num_buckets=1 t5.scale=nan
    xpos.base=0 xpos.scale_base=0
"""
# What only shows when files are read or folders written.
OF_FILES = {
    "train": """
        model.context_length=99999999 data.path=latin.txt data.path=null.txt data.path=a_folder data.cache_dir=a_file
        sample.prompt=漢字 run_dir= run_dir=a_folder run_dir=a_file/run run_dir=/proc/run resume=nowhere resume=a_folder
    """,
    "evaluate": "ckpt=tensors.ckpt ckpt=malicious.pkl ckpt=malicious.ckpt ckpt=a_spoiled_run data_path=one_token.txt",
    "compare": "runs=[nowhere,run] out=a_file",
    "explain": "sentence=漢字 out=a_folder out=a_file/page.html",
    "generate": "ckpt=cut.ckpt prompt=漢字",
}
RETRIEVAL = ("model.retrieval.layer=1", "model.retrieval.position_bias=true", "data.order=stream", "data.stride=null")
# What only shows beside a run, to Hydra, or once the model is made: the option that is named, and the command line.
COMBINATIONS = [
    ("data.order", ("data=distant_recall", "data.order=stream")),
    ("model.retrieval.position_bias", ("pos=shaw", *RETRIEVAL)),
    ("model.retrieval.layer", ("pos=t5", *RETRIEVAL, "model.retrieval.layer=4")),
    ("resume", ("resume=run", "pos=shaw", "trainer.max_epochs=9")),
    ("resume", ("resume=run", "-m", "seed=1,2")),
]


def each(lines: dict[str, str]) -> list[tuple[str, ...]]:
    """Return (script, option, value) of each option=value."""
    return [(script, *typed.split("=", 1)) for script, line in lines.items() for typed in line.split()]


def needed(script: str, option: str) -> list[str]:
    return [argument for argument in NEEDED[script] if not argument.startswith(f"{option}=")]


@pytest.mark.parametrize(("script", "option", "text"), each(WRONG))
def test_wrong_types_and_limits(script: str, option: str, text: str, *scheme: str) -> None:
    arguments = [*needed(script, option), *scheme, f"{option}={text}"]
    with pytest.raises(SettingError) as refusal:
        compose_config(*arguments) if script == "train" else parse_line(SCRIPTS[script], arguments)
    message = str(refusal.value)
    assert "\n" not in message
    shown = re.escape(text.strip("[]")) if text not in ("nan", "inf", "null") else rf"{text}|None"
    assert re.search(rf"\b{re.escape(option)}(\.0)?=\[?({shown})", message), message


@pytest.mark.parametrize("typed", OF_SCHEMES.split())
def test_settings_of_schemes(typed: str) -> None:
    name, value = typed.split("=")
    scheme, setting = name.split(".", 1)
    test_wrong_types_and_limits("train", f"pos.{setting}", value, f"pos={scheme}")


def test_every_number_has_limits() -> None:
    """Limits of a model's sizes and of the number of steps are checked beyond the fields."""
    config = compose_config(*NEEDED["train"])
    groups = [type(getattr(config, name)) for name in ("model", "data", "optim", "trainer", "sample", "evaluation")]
    for schema in (*groups, Settings, *SCRIPTS.values()):
        hints = get_type_hints(schema, include_extras=True)
        for field in dataclasses.fields(schema):
            types = [*_types(hints[field.name])]
            if {int, float} & {*types} and not any(isinstance(part, Limits) for part in types):
                assert field.name in {"context_length", "embed_dim", "num_layers", "num_heads", "max_steps"}


def _types(hint: object) -> Iterator[object]:
    """Yield a type, what its annotation adds, and the same of the types within."""
    yield hint
    for inner in (*get_args(hint), *getattr(hint, "__metadata__", ())):
        yield from _types(inner)


# Whole scripts


@pytest.fixture(scope="module")
def place(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and files that are no runs, texts or checkpoints."""
    root = tmp_path_factory.mktemp("place")
    shutil.copytree(trained(*TINY, "pos=t5"), root / "run")
    (root / "a_file").write_text("mine")
    (root / "a_folder").mkdir()
    (root / "a_folder" / "notes.md").write_text("mine")
    (root / "one_token.txt").write_text("a")
    (root / "null.txt").write_bytes(b"nothing\0here")
    (root / "latin.txt").write_bytes("Noël".encode("latin-1") * 50)
    torch.save({"weights": torch.ones(3)}, root / "tensors.ckpt")
    (root / "malicious.pkl").write_bytes(pickle.dumps(Malicious(root / "trace")))
    last = root / "run" / "checkpoints" / "last.ckpt"
    torch.save(torch.load(last, weights_only=True) | {"extra": Malicious(root / "trace")}, root / "malicious.ckpt")
    (root / "cut.ckpt").write_bytes(last.read_bytes()[:5000])
    (root / "a_spoiled_run" / "checkpoints").mkdir(parents=True)
    (root / "a_spoiled_run" / "config.yaml").write_bytes((root / "run" / "config.yaml").read_bytes())
    for name in ("best.safetensors", "last.ckpt"):
        (root / "a_spoiled_run" / "checkpoints" / name).write_bytes((root / "malicious.ckpt").read_bytes())
    return root


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, run_script: RunScript, place: Path) -> RunScript:
    """Any script, in that folder."""
    monkeypatch.chdir(place)
    return run_script


def tree(folder: Path) -> dict[Path, int | None]:
    return {path: path.stat().st_mtime_ns if path.is_file() else None for path in folder.rglob("*")}


OF_ONE_VALUE = [
    (script, option, (*needed(script, option), f"{option}={text}"), text.strip("[]").split(",")[0])
    for script, option, text in each(OF_FILES)
]
OF_SEVERAL = [("train", option, arguments, "") for option, arguments in COMBINATIONS]


@pytest.mark.parametrize(("name", "option", "arguments", "shown"), [*OF_ONE_VALUE, *OF_SEVERAL])
def test_what_a_script_refuses(
    name: str, option: str, arguments: tuple[str, ...], shown: str, script: RunScript, place: Path
) -> None:
    before = tree(place)
    code, _, complaints = script(name, *arguments)
    (line,) = [line for line in complaints.splitlines() if line]
    assert code == 2, complaints
    assert line.startswith("error: ")
    assert f"{option}=" in line
    assert shown in line
    assert tree(place) == before
