"""Every option of every script, and values that it can't take: one line that names both, and nothing else happens."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from conftest import SCHEMES, RunScript, compose_config
from poslab.settings.train import CONFIGS
from poslab.training import train
from runs_to_resume import TINY

NO_NUMBER, NO_FLAG = ("many", "null", "[1]"), ("perhaps", "2", "null")
COUNT = ("0", "-3", "2.5", *NO_NUMBER)  # a number of something, at least one
SHARE = ("-0.1", "1", "nan", *NO_NUMBER)
POSITIVE = ("-1", "nan", "inf", *NO_NUMBER)

# By option: values that can't be. `null` stands only where it is none of the valid ones.
TRAIN: dict[str, tuple[str, ...]] = {
    "model.context_length": (*COUNT, "99999999"),
    "model.embed_dim": (*COUNT, "99999999999"),
    "model.num_layers": COUNT,
    "model.num_heads": (*COUNT, "3"),
    "model.dropout": SHARE,
    "model.attention_backend": ("fast", "5", "flex"),
    "model.compile": NO_FLAG,
    "data.path": ("nowhere.txt", "", "no*thing", "empty.txt", "binary.bin", "latin.txt", "null.txt", "a_folder"),
    "data.encoding": ("gpt7", "5"),
    "data.vocabulary": ("some", "5"),
    "data.batch_size": COUNT,
    "data.stride": ("0", "-3", "2.5", "many"),
    "data.num_workers": ("-1", "2.5", "many", "9999"),
    "data.cache_dir": ("/proc/nothing", "a_file"),
    "data.same_batch": NO_FLAG,
    "optim.learning_rate": POSITIVE,
    "optim.weight_decay": POSITIVE,
    "optim.beta1": SHARE,
    "optim.beta2": SHARE,
    "optim.warmup_share": SHARE,
    "optim.final_share": ("-0.1", "1.5", "nan", *NO_NUMBER),
    "trainer.accelerator": ("abacus", "5"),
    "trainer.devices": ("0", "-5", "many", "9999", "2.5"),
    "trainer.num_nodes": COUNT,
    "trainer.strategy": ("luck", "5"),
    "trainer.precision": ("8", "half"),
    "trainer.max_epochs": ("0", "-3", "2.5", "many", "null"),
    "trainer.max_steps": ("0", "-3", "2.5", "many", "null"),
    "trainer.max_time": ("soon", "-1", "00:00"),
    "trainer.limit_train_batches": ("0", "-1", "1.5", "0.0001", "many", "true"),
    "trainer.limit_val_batches": ("-1", "1.5", "0.0001", "many", "true"),
    "trainer.val_check_interval": ("0", "-1", "1.5", "99999", "many", "true"),
    "trainer.check_val_every_n_epoch": ("0", "-1", "2.5", "99", "many"),
    "trainer.accumulate_grad_batches": COUNT,
    "trainer.gradient_clip_val": ("-1", "nan", "many"),
    "trainer.log_every_n_steps": COUNT,
    "trainer.deterministic": ("perhaps",),
    "trainer.benchmark": ("perhaps",),
    "trainer.detect_anomaly": NO_FLAG,
    "trainer.profiler": ("luck", "5"),
    "sample.prompt": ("漢字",),
    "sample.new_tokens": ("-1", "2.5", *NO_NUMBER),
    "sample.temperature": POSITIVE,
    "sample.top_k": ("0", "-1", "2.5", "many"),
    "evaluation.lengths": ("[0]", "5", "many", "[a]", "null"),
    "evaluation.stride": ("0", "-1", "2.5", "many"),
    "seed": ("-1", "4294967296", "2.5", *NO_NUMBER),
    "run_dir": ("a_file", "a_folder", "a_file/run", "/proc/run"),
    "resume": ("nowhere", "a_file", "a_folder", "a_spoiled_run"),
    "early_stopping_patience": ("0", "-1", "2.5", "many"),
    "target_loss": ("-1", "nan", "many"),
    "checkpoint_every_n_steps": ("0", "-1", "2.5", "many"),
    "threads": ("0", "-1", "2.5", "many"),
    "allow_code": NO_FLAG,
    "pos": ("t6", "5"),
    "model": ("huge", "5"),
    "data": ("verdicts", "5"),
    "optim": ("sgd",),
    "trainer": ("abacus", *(() if torch.cuda.is_available() else ("gpu",))),
    "experiment": ("nothing",),
    "debug": ("everything",),
    "nothing": ("1",),
    "model.nothing": ("1",),
}
POS: dict[str, dict[str, tuple[str, ...]]] = {
    "absolute": {"pos._target_": ("nowhere.Scheme", "os.getcwd", "torch.nn.Linear", "5", "poslab.positions.t5.T6")},
    "shaw": {
        "pos._target_": ("nowhere.Scheme",),
        "pos.max_distance": COUNT,
        "pos.keys": NO_FLAG,
        "pos.values": NO_FLAG,
        "pos.share_layers": NO_FLAG,
        "pos.share_heads": NO_FLAG,
    },
    "t5": {
        "pos._target_": ("nowhere.Scheme",),
        "pos.num_buckets": (*COUNT, "1"),
        "pos.max_distance": (*COUNT, "16"),
        "pos.scale": ("nan", "inf", *NO_NUMBER),
        "pos.share_layers": NO_FLAG,
    },
}
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
EVALUATE = {
    "ckpt": (*FOREIGN, "a_spoiled_run", "cut.ckpt"),
    "lengths": ("[0]", "[]", "5", "[a]", "many"),
    "stride": ("0", "-1", "2.5", "many"),
    "data_path": ("nowhere.txt", "", "empty.txt", "binary.bin", "latin.txt", "a_folder", "one_token.txt"),
    "device": ("tpu", "cuda", "5"),
    "allow_code": NO_FLAG,
    "nothing": ("1",),
}
COMPARE = {
    "runs": ("nowhere", "a_file", "[]", "[nowhere,run]", "a_folder"),
    "baseline": ("t6",),
    "effect": ("0", *POSITIVE),
    "sentence": (),  # where a model can't read it, the report does without that picture, and says so
    "out": ("a_file", "/proc/report"),
    "allow_differences": NO_FLAG,
    "allow_code": NO_FLAG,
    "nothing": ("1",),
}
GENERATE = {
    "ckpt": (*FOREIGN, "a_spoiled_run", "cut.ckpt"),
    "prompt": ("", "漢字"),
    "max_new_tokens": ("-1", "2.5", *NO_NUMBER),
    "temperature": POSITIVE,
    "top_k": ("0", "-1", "2.5", "many"),
    "top_p": ("0", "-1", "1.5", "nan", "many"),
    "seed": ("-1", "4294967296", "2.5", "many"),
    "samples": COUNT,
    "stop": NO_FLAG,
    "window": ("0", "-1", "2.5", "many"),
    "strict": NO_FLAG,
    "device": ("tpu", "cuda", "5"),
    "allow_code": NO_FLAG,
    "nothing": ("1",),
}
BENCHMARK = {
    "groups": ("[]", "[speed]", "speed"),
    "rounds": ("0", "-1", "2.5", "many"),
    "out": ("a_file", "a_folder", "/proc/benchmark"),
    "nothing": ("1",),
}
# What each script needs beside the option at hand.
NEEDED = {
    "train": (*TINY, "trainer.max_epochs=1"),
    "evaluate": ("ckpt=run",),
    "compare": ("runs=run",),
    "generate": ("ckpt=run", "prompt=I had"),
    "benchmark": (),
}
TABLE = [
    *(("train", (), option, value) for option, values in TRAIN.items() for value in values),
    *(
        ("train", (f"pos={scheme}",), option, value)
        for scheme, options in POS.items()
        for option, values in options.items()
        for value in values
    ),
    *(
        (script, (), option, value)
        for script, options in (
            ("evaluate", EVALUATE), ("compare", COMPARE), ("generate", GENERATE), ("benchmark", BENCHMARK),
        )
        for option, values in options.items()
        for value in values
    ),
]  # fmt: skip
# Values that can't be together: the option that is named, and the command line.
COMBINATIONS = [
    ("trainer.max_epochs", ("trainer.max_epochs=null", "trainer.max_steps=-1")),
    ("trainer.check_val_every_n_epoch", ("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=3")),
    ("early_stopping_patience", ("early_stopping_patience=2", "trainer.limit_val_batches=0")),
    ("pos.keys", ("pos=shaw", "pos.keys=false", "pos.values=false")),
    ("pos.max_distance", ("pos=t5", "pos.num_buckets=64", "pos.max_distance=32")),
    ("model.attention_backend", ("pos=shaw", "model.attention_backend=sdpa")),
    ("model.attention_backend", ("model.attention_backend=flex", "model.dropout=0")),
    ("model.num_heads", ("model.embed_dim=100", "model.num_heads=8")),
    ("model.context_length", ("data.path=short.txt",)),
    ("run_dir", ("resume=run", "run_dir=elsewhere", "trainer.max_epochs=9")),
    ("resume", ("resume=run",)),
    ("resume", ("resume=run", "pos=shaw", "trainer.max_epochs=9")),
    ("resume", ("resume=run", "-m", "seed=1,2")),
    ("seed", ("seed=1,2",)),
]


class Payload:
    """What pickle runs when it reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("trace"),)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and files that are no runs, texts or checkpoints."""
    root = tmp_path_factory.mktemp("place")
    train(compose_config(*TINY, "pos=t5", f"run_dir={root / 'run'}"))
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


def assert_refused(result: tuple[Any, str, str], option: str, value: str | None, place: Path) -> None:
    code, _, said = result
    lines = [line for line in said.splitlines() if line]
    assert code == 2, said
    assert len(lines) == 1, said
    assert lines[0].startswith("error: ")
    assert f"{option}=" in lines[0]
    if value is not None:
        assert value.strip("[]").split(",")[0] in lines[0] or f"{float(value):g}" in lines[0]
    assert "Traceback" not in said
    assert not (place / "trace").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given", "option", "value"), TABLE, ids=lambda part: str(part))
def test_refused(name: str, given: tuple[str, ...], option: str, value: str, script: RunScript, place: Path) -> None:
    before = tree(place)
    needed = [argument for argument in NEEDED[name] if not argument.startswith(f"{option}=")]
    assert_refused(script(name, *needed, *given, f"{option}={value}"), option, value, place)
    assert tree(place) == before


@pytest.mark.parametrize(("option", "arguments"), COMBINATIONS, ids=lambda part: str(part))
def test_combinations_that_are_refused(option: str, arguments: tuple[str, ...], script: RunScript, place: Path) -> None:
    before = tree(place)
    assert_refused(script("train", *arguments), option, None, place)
    assert tree(place) == before


def options_of(script: str, *overrides: str) -> set[str]:
    """All settings that the command line of a script takes, as it would be typed."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        plain = OmegaConf.to_container(compose(script, list(overrides)))
    flat = {f"{key}.{name}" for key, value in plain.items() if isinstance(value, dict) for name in value}
    return flat | {key for key, value in plain.items() if not isinstance(value, dict)}


def test_the_table_knows_every_option_of_every_script() -> None:
    for name, options in (
        ("evaluate", EVALUATE),
        ("compare", COMPARE),
        ("generate", GENERATE),
        ("benchmark", BENCHMARK),
    ):
        assert options_of(name) == set(options) - {"nothing"}
    assert set(POS) == set(SCHEMES)
    for scheme, own in POS.items():
        assert options_of("train", f"pos={scheme}") <= set(TRAIN) | set(own)
        assert {option for option in options_of("train", f"pos={scheme}") if option.startswith("pos.")} == set(own)


@pytest.mark.parametrize("name", sorted(set(NEEDED) - {"train"}))
def test_only_training_sweeps(name: str, script: RunScript, place: Path) -> None:
    before = tree(place)
    code, output, said = script(name, *NEEDED[name], "-m")
    assert (code, output, said) == (2, "", "error: -m: only train.py sweeps\n")
    assert tree(place) == before
