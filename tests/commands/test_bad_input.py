"""Values that a setting can't take: one line that names both, and nothing else happens.

Values of a wrong type are made from the fields of the dataclasses; those outside their limits stand in LIMITS. Both are
tried where they are checked; what only shows when files are read, by whole scripts.
"""

import dataclasses
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
import torch
import yaml
from common import FULL_CAMPAIGN, RunScript, compose_config
from runs_to_evaluate import Malicious
from runs_to_resume import TINY

from poslab.config.command_line import parse_line
from poslab.config.contrasts import Contrast
from poslab.config.fields import kinds, typed
from poslab.config.schema import Retrieval, Settings
from poslab.config.scripts import CompareConfig, EvaluateConfig, ExplainConfig, GenerateConfig, ModelChanges
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
# By type, as typed; `null` as well where it isn't valid.
WRONG = {
    int: ("many", "2.5", "[1]"),
    float: ("many", "nan", "inf", "[1]"),
    bool: ("perhaps", "2"),
    list[int]: ("many", "[a]"),
    str: (),
    list[str]: (),
    list[Contrast]: ("many", "[5]"),
    Any: (),
    Retrieval: ("many", "5"),
    ModelChanges: ("many", "5"),
}
# The first values outside each setting's limits.
LIMITS = {
    "train": """
        model.context_length=0 model.embed_dim=0 model.num_layers=0 model.num_heads=0 model.num_heads=3
        model.dropout=-0.1 model.dropout=1 model.init_std=0 model.attention_backend=nothing model.longest_text=0
        model.memory_length=-1 model.memory_length=1000001
        data.path=nowhere.txt data.path= data.path=no*thing data.encoding=gpt7 data.encoding=5 data.vocabulary=nothing
        data.validation_share=0 data.validation_share=1 data.test_share=-0.1 data.test_share=1 data.batch_size=0
        data.stride=0 data.order=nothing data.num_workers=-1 data.num_workers=9999
        optim.learning_rate=-1 optim.weight_decay=-1 optim.beta1=-0.1 optim.beta1=1 optim.beta2=-0.1 optim.beta2=1
        optim.warmup_share=-0.1 optim.warmup_share=1 optim.final_share=-0.1 optim.final_share=1.1
        optim.position_learning_rate_factor=-1
        trainer.accelerator=nothing trainer.num_nodes=0 trainer.precision=nothing trainer.max_epochs=null
        trainer.max_epochs=0 trainer.max_steps=0 trainer.max_steps=-3 trainer.limit_train_batches=0
        trainer.limit_train_batches=1.5 trainer.limit_train_batches=true trainer.limit_val_batches=-1
        trainer.limit_val_batches=1.5 trainer.limit_val_batches=true trainer.val_check_interval=0
        trainer.val_check_interval=1.5 trainer.val_check_interval=true trainer.check_val_every_n_epoch=0
        trainer.accumulate_grad_batches=0 trainer.gradient_clip_val=-1 trainer.log_every_n_steps=0
        sample.new_tokens=-1 sample.temperature=-1 sample.top_k=0
        evaluation.lengths=[0] evaluation.stride=0 evaluation.last=0 logger.name=nothing
        seed=-1 seed=4294967296 early_stopping_patience=0 target_loss=-1 checkpoint_every_n_steps=0 threads=0
        threads=1025
    """,
    "evaluate": "lengths=[0] stride=0 last=0 device=nothing threads=0 threads=1025 model.memory_length=-1 "
    "model.memory_length=1000001 model.memory_length=many model.nothing=5",
    "compare": "pairs=nothing length=0 validation=nothing effect=0 threads=0 threads=1025",
    "explain": "ckpt=[] ckpt=[a,b,c] threads=0 threads=1025",
    "generate": "prompt= max_new_tokens=-1 temperature=-1 top_k=0 top_p=0 top_p=1.1 seed=-1 seed=4294967296 samples=0 "
    "samples=1001 window=0 device=nothing threads=0 threads=1025",
}
BEYOND = {script: [tuple(each.split("=", 1)) for each in line.split()] for script, line in LIMITS.items()}
# What only shows when files are read or folders written.
OF_FILES = {
    "train": {
        "model.context_length": ("99999999",),
        "data.path": ("empty.txt", "binary.bin", "latin.txt", "a_folder", "null.txt"),
        "data.cache_dir": ("/proc/nothing", "a_file"),
        "sample.prompt": ("漢字",),
        "run_dir": ("", "a_file", "a_folder", "a_file/run", "/proc/run"),
        "resume": ("nowhere", "a_file", "a_folder"),
    },
    "evaluate": {
        "ckpt": ("nowhere", "a_folder", "a_file", "tensors.ckpt", "malicious.pkl", "a_spoiled_run", "malicious.ckpt"),
        "data_path": ("nowhere.txt", "", "empty.txt", "a_folder", "one_token.txt"),
    },
    "compare": {"runs": ("a_file", "[nowhere,run]", "a_folder"), "out": ("a_file", "/proc/report")},
    "explain": {
        "ckpt": ("binary.bin", "malicious.ckpt"),
        "sentence": ("漢字", ""),
        "out": ("a_file", "a_folder", "/proc/page.html", "a_file/page.html"),
    },
    "generate": {"ckpt": ("malicious.ckpt", "cut.ckpt"), "prompt": ("漢字",)},
}
# Values that can't be together: the option that is named, and the command line.
COMBINATIONS = [
    ("model.num_heads", ("model.embed_dim=100", "model.num_heads=8")),
    ("model.retrieval.layer", ("model.retrieval.layer=4",)),
    ("model.retrieval.layer", ("model.retrieval.size=64",)),
    ("model.retrieval.k", ("model.retrieval.layer=1", "model.retrieval.size=16")),
    ("data.order", ("pos=t5", "model.memory_length=8")),
    ("data.order", ("pos=t5", "model.retrieval.layer=1")),
    ("data.stride", ("data.order=stream",)),
    ("data.test_share", ("data.test_share=0.9",)),
]
RETRIEVAL = ("model.retrieval.layer=1", "model.retrieval.position_bias=true", "data.order=stream", "data.stride=null")
# Those that only show beside a run, to Hydra, or once the model is made.
COMBINATIONS_OF_SCRIPTS = [
    ("data.order", ("data=distant_recall", "data.order=stream")),
    ("model.retrieval.position_bias", ("pos=shaw", *RETRIEVAL)),
    ("resume", ("resume=run", "pos=shaw", "trainer.max_epochs=9")),
    ("resume", ("resume=run", "-m", "seed=1,2")),
]


def wrong_values(schema: type) -> Iterator[tuple[str, str]]:
    """(field, a value as typed) for whatever the fields' types rule out."""
    for field in dataclasses.fields(schema):
        hint = get_type_hints(schema)[field.name]
        nothing = ("null",) if NoneType not in get_args(hint) and hint in (int, float, bool, list[int]) else ()
        for value in (*WRONG[kinds(hint)[0]], *nothing) if not field.metadata.get("text") else ():
            yield field.name, value


def groups_of_train() -> dict[str, tuple[type, dict[str, Any]]]:
    """By group of settings ("" is the top level): its dataclass, and valid values."""
    config = compose_config(*NEEDED["train"])
    groups = {name: value for name, value in vars(config).items() if dataclasses.is_dataclass(value) and name != "pos"}
    settings = groups.pop("settings")
    return {name: (type(value), vars(value)) for name, value in groups.items()} | {"": (Settings, vars(settings))}


GROUPS = groups_of_train()
TRAIN = [
    *(
        (f"{group}.{name}".lstrip("."), text)
        for group, (schema, _) in GROUPS.items()
        for name, text in wrong_values(schema)
    ),
    *BEYOND["train"],
]
OF_SCRIPTS = [
    (script, *wrong) for script, schema in SCRIPTS.items() for wrong in (*wrong_values(schema), *BEYOND[script])
]
BY_SCRIPTS = [(script, name, text) for script, of in OF_FILES.items() for name, texts in of.items() for text in texts]
# By default the last value of each option, in the slow set all, in a full campaign those of types and limits as well.
LAST = {(script, name): (script, name, text) for script, name, text in BY_SCRIPTS}.values()
WHOLE = [*(("train", *wrong) for wrong in TRAIN), *OF_SCRIPTS] if FULL_CAMPAIGN else []


def assert_one_line(message: str, option: str, text: str) -> None:
    assert "\n" not in message
    shown = re.escape(text.strip("[]")) if text not in ("nan", "inf", "null") else rf"{text}|None"
    assert re.search(rf"\b{re.escape(option)}=\[?({shown})", message), message


@pytest.mark.parametrize(("option", "text"), TRAIN)
def test_settings_of_a_run(option: str, text: str) -> None:
    group, _, name = option.rpartition(".")
    schema, valid = GROUPS[group]
    with pytest.raises(SettingError) as refusal:
        typed(schema, valid | {name: yaml.safe_load(text) if text else text}, group)
    assert_one_line(str(refusal.value), option, text)


@pytest.mark.parametrize(("script", "option", "text"), OF_SCRIPTS)
def test_settings_of_a_script(script: str, option: str, text: str) -> None:
    needed = [argument for argument in NEEDED[script] if not argument.startswith(f"{option}=")]
    with pytest.raises(SettingError) as refusal:
        parse_line(SCRIPTS[script], [*needed, f"{option}={text}"])
    assert_one_line(str(refusal.value), option, text)


def test_every_number_has_its_limits_tried() -> None:
    numbers = {
        ("train", f"{group}.{field.name}".lstrip("."), get_type_hints(schema)[field.name])
        for group, (schema, _) in GROUPS.items()
        for field in dataclasses.fields(schema)
    } | {
        (script, field.name, get_type_hints(schema)[field.name])
        for script, schema in SCRIPTS.items()
        for field in dataclasses.fields(schema)
    }
    tried = {(script, option) for script, wrong in BEYOND.items() for option, _ in wrong}
    assert {(script, option) for script, option, hint in numbers if {int, float, list[int]} & {*kinds(hint)}} <= tried


# Whole scripts


@pytest.fixture(scope="module")
def place(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and files that are no runs, texts or checkpoints."""
    root = tmp_path_factory.mktemp("place")
    shutil.copytree(trained(*TINY, "pos=t5"), root / "run")
    (root / "a_file").write_text("mine")
    (root / "a_folder").mkdir()
    (root / "a_folder" / "notes.md").write_text("mine")
    (root / "empty.txt").write_bytes(b"")
    (root / "short.txt").write_text("Too short a text for a context.")
    (root / "one_token.txt").write_text("a")
    (root / "binary.bin").write_bytes(bytes(range(256)) * 20)
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


def refuse(script: RunScript, name: str, arguments: tuple[str, ...], option: str, place: Path) -> str:
    """The one line in which the script refuses."""
    before = tree(place)
    code, _, complaints = script(name, *arguments)
    (line,) = [line for line in complaints.splitlines() if line]
    assert code == 2, complaints
    assert line.startswith("error: ")
    assert f"{option}=" in line
    assert tree(place) == before
    return line


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        *LAST,
        *(pytest.param(*wrong, marks=pytest.mark.slow) for wrong in (*BY_SCRIPTS, *WHOLE) if wrong not in LAST),
    ],
)
def test_values_that_a_script_refuses(name: str, option: str, text: str, script: RunScript, place: Path) -> None:
    needed = [argument for argument in NEEDED[name] if not argument.startswith(f"{option}=")]
    line = refuse(script, name, (*needed, f"{option}={text}"), option, place)
    assert text.strip("[]").split(",")[0] in line or f"{float(text):g}" in line


@pytest.mark.parametrize(("option", "arguments"), COMBINATIONS, ids=lambda part: str(part))
def test_combinations_that_are_refused(option: str, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as refusal:
        compose_config(*arguments)
    assert refusal.value.option == option


@pytest.mark.parametrize(("option", "arguments"), COMBINATIONS_OF_SCRIPTS, ids=lambda part: str(part))
def test_combinations_that_a_script_refuses(
    option: str, arguments: tuple[str, ...], script: RunScript, place: Path
) -> None:
    refuse(script, "train", arguments, option, place)
