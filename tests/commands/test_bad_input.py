"""Values that a setting can't take: one line that names both, and nothing else happens.

The table is made from the fields of the dataclasses, those of every scheme in configs/pos included; what a type doesn't
tell stands in LIMITS. Most is tried where it is checked, without a script; a few from the command line, more in the
slow set, and all in a full campaign (tests/fault_campaign.py).
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
from common import FULL_CAMPAIGN, SOUND, RunScript, compose_config, make_scheme
from runs_to_resume import TINY

from poslab.config.command_line import parse_line
from poslab.config.contrasts import Contrast
from poslab.config.retrieval import Retrieval
from poslab.config.schema import Settings
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.scripts import CompareConfig, EvaluateConfig, ExplainConfig, GenerateConfig
from poslab.config.train import flat
from poslab.config.typed import typed
from poslab.errors import SettingError
from poslab.positions import PositionScheme

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
    PositionScheme: ("t6", "5", "null"),
    Retrieval: ("many", "5"),
}
# What else is impossible, without a look at anything but the settings: what a field's limits don't tell.
LIMITS = {
    "model.context_length": ("0", "-3"),
    "model.embed_dim": ("0", "-3"),
    "model.num_layers": ("0", "-3"),
    "model.num_heads": ("0", "-3", "3"),
    "data.path": ("nowhere.txt", "", "no*thing"),
    "data.encoding": ("gpt7", "5"),
    "data.num_workers": ("9999",),
    "trainer.max_epochs": ("null",),
    "trainer.max_steps": ("0", "-3"),
    "trainer.limit_train_batches": ("1.5", "true"),
    "trainer.limit_val_batches": ("1.5", "true"),
    "trainer.val_check_interval": ("1.5", "true"),
    "trainer.check_val_every_n_epoch": ("99",),
}
SCRIPT_LIMITS = {
    "evaluate": {"lengths": ("[]",)},
    "compare": {"runs": ("[]",)},
    "explain": {"ckpt": ("[]", "[a,b,c]")},
    "generate": {"prompt": ("",)},
}
# What only shows when files are read, folders written or Lightning is asked.
FOREIGN = (
    "nowhere",
    "a_folder",
    "a_file",
    "latin.txt",
    "binary.bin",
    "tensors.ckpt",
    "malicious.ckpt",
    "malicious.pkl",
)
LATER = {
    "train": {
        "model.context_length": ("99999999",),
        "model.num_heads": ("3",),
        "data.path": ("empty.txt", "binary.bin", "latin.txt", "null.txt", "a_folder"),
        "data.cache_dir": ("/proc/nothing", "a_file"),
        "trainer.devices": ("0", "-5", "9999", "2.5"),
        "trainer.strategy": ("luck", "5"),
        "trainer.max_time": ("soon", "-1", "00:00"),
        "trainer.limit_train_batches": ("0.0001",),
        "trainer.limit_val_batches": ("0.0001",),
        "trainer.val_check_interval": ("99999",),
        "trainer.profiler": ("luck", "5"),
        "sample.prompt": ("漢字",),
        "run_dir": ("", "a_file", "a_folder", "a_file/run", "/proc/run"),
        "resume": ("nowhere", "a_file", "a_folder", "a_spoiled_run"),
        "pos._target_": ("nowhere.Scheme", "os.getcwd", "torch.nn.Linear", "5", "poslab.positions.t5.T6"),
        "pos": ("t6", "5"),
        "model": ("huge", "5"),
        "data": ("verdicts", "5"),
        "optim": ("sgd",),
        "trainer": ("abacus", *(() if torch.cuda.is_available() else ("gpu",))),
        "experiment": ("nothing",),
        "debug": ("everything",),
        "nothing": ("1",),
        "model.nothing": ("1",),
    },
    "evaluate": {
        "ckpt": (*FOREIGN, "a_spoiled_run", "cut.ckpt"),
        "data_path": ("nowhere.txt", "", "empty.txt", "binary.bin", "latin.txt", "a_folder", "one_token.txt"),
        "nothing": ("1",),
    },
    "compare": {
        "runs": ("nowhere", "a_file", "[nowhere,run]", "a_folder"),
        "baseline": ("t6",),
        "out": ("a_file", "/proc/report"),
        "nothing": ("1",),
    },
    "explain": {
        "ckpt": (*FOREIGN, "a_spoiled_run", "cut.ckpt"),
        "sentence": ("漢字", ""),
        "out": ("a_file", "a_folder", "/proc/page.html", "a_file/page.html"),
        "nothing": ("1",),
    },
    "generate": {"ckpt": (*FOREIGN, "a_spoiled_run", "cut.ckpt"), "prompt": ("漢字",), "nothing": ("1",)},
}
# Values that can't be together: the option that is named, and the command line.
STREAM = ("data.order=stream", "data.stride=null")
COMBINATIONS = [
    ("trainer.max_epochs", ("trainer.max_epochs=null", "trainer.max_steps=-1")),
    ("trainer.check_val_every_n_epoch", ("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=3")),
    ("early_stopping_patience", ("early_stopping_patience=2", "trainer.limit_val_batches=0")),
    ("pos.keys", ("pos=shaw", "pos.keys=false", "pos.values=false")),
    ("pos.max_distance", ("pos=t5", "pos.num_buckets=64", "pos.max_distance=32")),
    ("model.attention_backend", ("pos=shaw", "model.attention_backend=sdpa")),
    ("model.num_heads", ("model.embed_dim=100", "model.num_heads=8")),
    ("model.retrieval.layer", ("model.retrieval.layer=4",)),
    ("model.retrieval.layer", ("model.retrieval.size=64",)),
    ("model.retrieval.k", ("model.retrieval.layer=1", "model.retrieval.size=16")),
    (
        "model.retrieval.position_bias",
        ("pos=shaw", "model.retrieval.layer=1", "model.retrieval.position_bias=true", *STREAM),
    ),
    ("data.order", ("pos=t5", "model.memory_length=8")),
    ("data.order", ("data=distant_recall", "data.order=stream")),
    ("model.memory_length", ("pos=t5", "data.order=stream", "data.stride=null", "model.memory_length=1000001")),
    ("data.order", ("pos=t5", "model.retrieval.layer=1")),
    ("data.stride", ("data.order=stream",)),
    ("data.batch_size", (*STREAM, "data.batch_size=1000")),
    ("model.context_length", ("data.path=short.txt",)),
    ("run_dir", ("resume=run", "run_dir=elsewhere", "trainer.max_epochs=9")),
    ("resume", ("resume=run",)),
    ("resume", ("resume=run", "pos=shaw", "trainer.max_epochs=9")),
    ("resume", ("resume=run", "-m", "seed=1,2")),
    ("seed", ("seed=1,2",)),
]
# Of all that shows later, those that come furthest before they are refused, one of a kind.
FURTHEST = {
    "train": ("model.num_heads", "data.path", "data.cache_dir", "trainer.devices", "sample.prompt", "run_dir"),
    "evaluate": ("ckpt", "data_path"),
    "compare": ("out",),
    "explain": ("sentence", "out"),
    "generate": ("ckpt",),
}


def wrong_values(schema: type) -> Iterator[tuple[str, str]]:
    """(field, a value as typed) for whatever the fields' types and limits rule out."""
    for field in dataclasses.fields(schema):
        hint, metadata = get_type_hints(schema)[field.name], field.metadata
        kinds = get_args(hint) if NoneType in get_args(hint) else (hint, NoneType)
        nothing = ("null",) if NoneType not in get_args(hint) and hint in (int, float, bool, list[int]) else ()
        limits = [
            *(str(metadata["least"] - distance) for distance in (1, 4) if metadata.get("least") is not None),
            *(str(metadata["above"] - distance) for distance in (0, 3) if metadata.get("above") is not None),
            *([str(metadata["most"] + 1)] if metadata.get("most") is not None else []),
            *([str(metadata["below"])] if metadata.get("below") is not None else []),
            *(value for value in ("nothing", "5") if metadata.get("choices")),
        ]
        for value in (*WRONG[kinds[0]], *nothing, *limits) if not metadata.get("text") else ():
            yield field.name, f"[{value}]" if kinds[0] in (list[int], list[str]) and value in limits else value


def groups_of_train() -> dict[str, tuple[type, dict[str, Any]]]:
    """By group of settings ("" is the top level): its dataclass, and valid values."""
    config = compose_config(*NEEDED["train"])
    groups = {name: value for name, value in vars(config).items() if dataclasses.is_dataclass(value) and name != "pos"}
    settings = groups.pop("settings")
    return {name: (type(value), vars(value)) for name, value in groups.items()} | {"": (Settings, vars(settings))}


GROUPS = groups_of_train()
TYPES = [(group, name, text) for group, (schema, _) in GROUPS.items() for name, text in wrong_values(schema)]
TRAIN = [
    *TYPES,
    *((*(name.split(".") if "." in name else ("", name)), text) for name, texts in LIMITS.items() for text in texts),
]
OF_SCRIPTS = [
    *((script, name, text) for script, schema in SCRIPTS.items() for name, text in wrong_values(schema)),
    *((script, name, text) for script, of in SCRIPT_LIMITS.items() for name, texts in of.items() for text in texts),
]
OF_SCHEMES = [(name, *wrong) for name in SOUND for wrong in wrong_values(type(make_scheme(name)))]
WHOLE = [
    *(("train", f"{group}.{name}".lstrip("."), text) for group, name, text in TRAIN),
    *OF_SCRIPTS,
    *((script, name, text) for script, of in LATER.items() for name, texts in of.items() for text in texts),
]


def assert_one_line(message: str, option: str, text: str) -> None:
    assert "\n" not in message
    shown = re.escape(text.strip("[]")) if text not in ("nan", "inf", "null") else rf"{text}|None"
    assert re.search(rf"\b{re.escape(option)}=\[?({shown})", message), message


@pytest.mark.parametrize(("group", "name", "text"), TRAIN)
def test_settings_of_a_run(group: str, name: str, text: str) -> None:
    schema, valid = GROUPS[group]
    with pytest.raises(SettingError) as refusal:
        typed(schema, valid | {name: yaml.safe_load(text) if text else text}, group)
    assert_one_line(str(refusal.value), f"{group}.{name}".lstrip("."), text)


@pytest.mark.parametrize(("scheme", "name", "text"), OF_SCHEMES)
def test_settings_of_a_scheme(scheme: str, name: str, text: str) -> None:
    valid = make_scheme(scheme)
    with pytest.raises(SettingError) as refusal:
        parse_scheme(node_of(valid) | {name: yaml.safe_load(text)})
    assert_one_line(str(refusal.value), f"pos.{name}", text)


@pytest.mark.parametrize(("script", "name", "text"), OF_SCRIPTS)
def test_settings_of_a_script(script: str, name: str, text: str) -> None:
    needed = [argument for argument in NEEDED[script] if not argument.startswith(f"{name}=")]
    with pytest.raises(SettingError) as refusal:
        parse_line(SCRIPTS[script], [*needed, f"{name}={text}"])
    assert_one_line(str(refusal.value), name, text)


def test_every_setting_with_limits_of_its_own_is_there() -> None:
    """LIMITS names settings that exist, so that a renamed one is not left untried."""
    assert set(LIMITS) <= set(flat(compose_config())) | {"run_dir", "resume"}
    for script, limits in SCRIPT_LIMITS.items():
        assert set(limits) <= {field.name for field in dataclasses.fields(SCRIPTS[script])}


def test_the_limits_that_numbers_have() -> None:
    """A limit that is taken from its field is missed here; the table above is made from those that are left."""
    schemas = {name: schema for name, (schema, _) in GROUPS.items()} | SCRIPTS
    least: dict[Any, set[str]] = {None: set(), 0: set(), 1: set()}
    above, upper = {}, {}
    for group, schema in schemas.items():
        for field in dataclasses.fields(schema):
            hint = get_type_hints(schema)[field.name]
            name = f"{group}.{field.name}".lstrip(".")
            if {int, float, list[int]} & {hint, *get_args(hint)}:
                least[field.metadata.get("least")].add(name)
            if (limit := field.metadata.get("above")) is not None:
                above[name] = limit
            if (limit := field.metadata.get("below") or field.metadata.get("most")) is not None:
                upper[name] = limit
    sizes = {f"model.{size}" for size in ("context_length", "embed_dim", "num_layers", "num_heads")}
    assert above == dict.fromkeys(
        (
            "model.init_std",
            "data.validation_share",
            "trainer.limit_train_batches",
            "trainer.val_check_interval",
            "compare.effect",
            "generate.top_p",
        ),
        0,
    )
    assert least[None] == sizes | {"trainer.max_steps"} | above.keys()  # the first checked otherwise
    assert least[0] == {
        "model.dropout", "model.memory_length", "data.num_workers", "optim.learning_rate", "optim.weight_decay",
        "optim.beta1", "optim.beta2", "optim.warmup_share", "optim.final_share", "trainer.gradient_clip_val",
        "sample.new_tokens", "sample.temperature", "seed", "target_loss", "generate.max_new_tokens",
        "generate.temperature", "generate.seed", "trainer.limit_val_batches", "data.test_share",
        "optim.position_learning_rate_factor",
    }  # fmt: skip
    shares = dict.fromkeys(
        (
            "model.dropout",
            "data.validation_share",
            "data.test_share",
            "optim.beta1",
            "optim.beta2",
            "optim.warmup_share",
            "optim.final_share",
            "generate.top_p",
        ),
        1,
    )
    assert upper == dict.fromkeys(shares, 1) | {
        "seed": 2**32,
        "generate.seed": 2**32,
        "generate.samples": 1000,
        **dict.fromkeys(
            ("threads", "evaluate.threads", "compare.threads", "explain.threads", "generate.threads"), 1024
        ),
        "model.memory_length": 1_000_000,
    }


# Whole scripts


class Payload:
    """What pickle runs when it reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("trace"),)


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
    (root / "malicious.pkl").write_bytes(pickle.dumps(Payload()))
    last = root / "run" / "checkpoints" / "last.ckpt"
    torch.save(torch.load(last, weights_only=True) | {"extra": Payload()}, root / "malicious.ckpt")
    (root / "cut.ckpt").write_bytes(last.read_bytes()[:5000])
    (root / "a_spoiled_run" / "checkpoints").mkdir(parents=True)
    (root / "a_spoiled_run" / "config.yaml").write_bytes((root / "run" / "config.yaml").read_bytes())
    for name in ("best.ckpt", "last.ckpt"):
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


def refuse_value(script: RunScript, name: str, option: str, text: str, place: Path) -> None:
    needed = [argument for argument in NEEDED[name] if not argument.startswith(f"{option}=")]
    line = refuse(script, name, (*needed, f"{option}={text}"), option, place)
    assert text.strip("[]").split(",")[0] in line or f"{float(text):g}" in line


@pytest.mark.parametrize(("name", "option"), [(name, option) for name, of in FURTHEST.items() for option in of])
def test_refused_by_a_script(name: str, option: str, script: RunScript, place: Path) -> None:
    refuse_value(script, name, option, LATER[name][option][-1], place)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option", "text"), WHOLE if FULL_CAMPAIGN else WHOLE[::12])
def test_everything_is_refused_by_its_script(name: str, option: str, text: str, script: RunScript, place: Path) -> None:
    refuse_value(script, name, option, text, place)


@pytest.mark.parametrize(("option", "arguments"), COMBINATIONS, ids=lambda part: str(part))
def test_combinations_that_are_refused(option: str, arguments: tuple[str, ...], script: RunScript, place: Path) -> None:
    refuse(script, "train", arguments, option, place)
