"""Whoever wrote a run, a file of weights or an export, reading it imports and calls poslab's own parts alone."""

import ast
import builtins
import contextlib
import copy
import importlib.util
import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from common import CONFIGS, compose_config, composed
from refusals import refused
from runs_to_compare import report_of
from runs_to_resume import TINY, TINY_TASK, resume
from safetensors.torch import save_file

import poslab
from poslab.config import checking
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.scripts import ExplainConfig
from poslab.config.train import resolved
from poslab.config.trust import require_trusted
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import evaluate_run, own_task
from poslab.hf.export import export
from poslab.runs import checkpoint_files
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.checkpoint_files import read_checkpoint, save_weights
from poslab.runs.resumed_settings import settings_of_resumed_run

CSV, LAYER_NORM = "pytorch_lightning.loggers.CSVLogger", "torch.nn.LayerNorm"
PACKAGES = ("poslab", "torch.nn", "torch.optim", "torch.hub", "pytorch_lightning", "hydra.utils")
RUN = compose_config(*TINY).plain
TASK = compose_config(*TINY_TASK).plain
# Where a description may name a class, by how it is set there; and places where none is made.
SLOTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "pos": lambda node: {"pos": node},
    "a scheme within": lambda node: {"pos": {"_target_": "randomized", "of": node}},
    "a scheme of layers": lambda node: {"pos": {"_target_": "layers", "layers": ["nope", node]}},
    "a place of layers": lambda node: {"pos": {"_target_": "layers", "layers": {"0": "nope", "1": node}}},
    "data": lambda node: {"data": TASK["data"] | node},
    "norm": lambda node: {"model": RUN["model"] | {"norm": node}},
    "mlp": lambda node: {"model": RUN["model"] | {"mlp": node}},
    "a setting of norm": lambda node: {"model": RUN["model"] | {"norm": {"_target_": LAYER_NORM, "eps": node}}},
    "a setting of model": lambda node: {"model": RUN["model"] | {"retrieval": node}},
    "optim": lambda node: {"optim": RUN["optim"] | node},
    "a setting of optim": lambda node: {"optim": RUN["optim"] | {"betas": [node, 0.9]}},
    "schedule": lambda node: {"schedule": node},
    "callbacks": lambda node: {"callbacks": {"one": node}},
    "logger": lambda node: {"logger": {"one": node}},
    "a setting of logger": lambda node: {"logger": {"one": {"_target_": CSV, "name": node}}},
}  # fmt: skip
# Folders of configs/ whose options a slot may be, of all others none.
FOLDERS = {
    "pos": "pos", "a scheme within": "pos", "a scheme of layers": "pos", "a place of layers": "pos", "data": "data",
    "norm": "model/norm", "mlp": "model/mlp", "optim": "optim", "schedule": "schedule", "logger": "logger",
}  # fmt: skip


@cache
def callables() -> list[str]:
    """Return every class, function, method and import of the packages, public or private, by its full name."""
    names = {f"builtins.{name}" for name in vars(builtins)} | {*vars(builtins)}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin)
        files = root.parent.rglob("*.py") if spec.submodule_search_locations else [root]
        for file in files:
            relative = file.relative_to(root.parent).with_suffix("") if spec.submodule_search_locations else Path()
            module = ".".join([package, *(part for part in relative.parts if part != "__init__")])
            names |= {f"{module}.{name}" for name in _defined(ast.parse(file.read_text(encoding="utf-8")).body)}
    return sorted(names)


def _defined(body: list[Any], prefix: str = "") -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.ClassDef():
                yield prefix + statement.name
                yield from _defined(statement.body, f"{prefix}{statement.name}.")
            case ast.FunctionDef():
                yield prefix + statement.name
            case ast.Import() | ast.ImportFrom():
                yield from (prefix + (alias.asname or alias.name) for alias in statement.names)
            case ast.Assign():
                yield from (prefix + target.id for target in statement.targets if isinstance(target, ast.Name))
            case ast.If() | ast.Try():
                yield from _defined([*ast.iter_child_nodes(statement)], prefix)


@cache
def offered(slot: str) -> set[str]:
    """Return the classes that the slot may name, read from configs/ as text."""
    lines = [line.strip() for file in (CONFIGS / FOLDERS.get(slot, "none")).glob("*.yaml") for line in file.open()]
    classes = {line.partition(": ")[2] for line in lines if line.startswith("_target_: ")}
    if slot == "optim":
        of_torch = {name for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
        classes |= {f"torch.optim.{name}" for name in of_torch if hasattr(getattr(torch.optim, name), "step")}
    return classes | (set(vars(builtins)) if FOLDERS.get(slot) == "pos" else set())  # no scheme has such a name


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules that poslab imports by their names."""
    seen: list[str] = []

    def import_module(name: str) -> Any:
        seen.append(name)
        return importlib.import_module(name)

    monkeypatch.setattr(checking, "importlib", SimpleNamespace(import_module=import_module))
    return seen


@pytest.mark.parametrize("slot", SLOTS)
def test_a_description_names_no_callable_but_poslab_s_parts(slot: str) -> None:
    names = callables()
    assert len(names) > 10_000
    assert {"pytorch_lightning.core.saving.pl_load", "torch.hub.load", "hydra.utils.instantiate"} <= {*names}
    allowed = offered(slot)
    for name in names:
        description = SLOTS[slot]({"_target_": name})
        if name in allowed:
            require_trusted(description)
        else:
            with pytest.raises(ValueError, match=r"none of poslab's parts|keys that begin with _"):
                require_trusted(description)


# Of all callables every twentieth, and all in minutes.
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slot", SLOTS)
def test_no_reader_imports_what_a_file_names(
    slot: str, step: int, imports: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The files are real: config.yaml of a run to resume, its weights, and the configuration of an export."""
    names = [name for name in callables() if name not in offered(slot)][list(SLOTS).index(slot) % step :: step]
    overrides = [f"resume={tmp_path}"]
    command = composed(*overrides)
    plain = resolved(command)
    monkeypatch.setattr("poslab.runs.resumed_settings.resolved", lambda config: copy.deepcopy(plain))  # once for all
    (weights := tmp_path / "checkpoints" / "best.safetensors").parent.mkdir()

    def load_task() -> Any:
        checkpoint: Any = SimpleNamespace(config=read_checkpoint(weights)["poslab"]["config"], path=weights)
        return own_task(checkpoint, allow_code=False)

    def load_with_transformers() -> Any:
        return PoslabForCausalLM(PoslabConfig(**json.loads((tmp_path / "config.json").read_text())))

    readers: list[Callable[[], Any]] = [lambda: settings_of_resumed_run(command, overrides)]
    if slot == "data":
        readers.append(load_task)
    if slot in ("pos", "norm", "mlp") or slot.startswith(("a scheme", "a place", "a setting of norm")):
        readers.append(lambda: poslab.load(tmp_path))
        with contextlib.suppress(ImportError):
            from poslab.hf.modeling_poslab import PoslabConfig, PoslabForCausalLM

            readers.append(load_with_transformers)
    loaded: set[str] = set()
    for name in names:
        # No more settings than files need to be read, as their number is large.
        settings = {group: RUN[group] for group in ("seed", "pos", "data", "model")} | SLOTS[slot]({"_target_": name})
        described = json.dumps(settings)
        (tmp_path / "config.yaml").write_text(described)
        about = {"config": settings, "pos": "t5", "data_sha256": "", "symbols": ["a"]}
        description = json.dumps(about)
        save_file({}, weights, {"poslab": description, "sha256": checkpoint_files._sha256(description, {})})
        (tmp_path / "config.json").write_text(described)
        for read in readers:
            with pytest.raises(ValueError, match=r"none of poslab's parts|keys that begin with _"):
                read()
        loaded = loaded or {*sys.modules}  # from then on readers have all that they need themselves
    assert not imports
    assert loaded == {*sys.modules}


PLANTED = """
import os
os.mkdir({trace!r})
def call(*arguments, **settings):
    os.mkdir({trace!r} + "-called")
"""
ATTACKS = {
    "a module of the folder one is in": lambda tmp: {"_target_": "planted.call"},
    "a call of Lightning's that unpickles": lambda tmp: {
        "_target_": "pytorch_lightning.core.saving.pl_load", "_args_": [str(tmp / "evil.pt")], "weights_only": False
    },
    "torch.hub": lambda tmp: {
        "_target_": "torch.hub.load", "repo_or_dir": str(tmp), "model": "call", "source": "local"
    },
    "Hydra": lambda tmp: {"_target_": "hydra.utils.instantiate", "config": {"_target_": "planted.call"}},
    "a nested node": lambda tmp: {"_target_": "torch.nn.LayerNorm", "eps": {"_target_": "planted.call"}},
    "a nested node in a list": lambda tmp: {"_target_": "torch.nn.LayerNorm", "eps": [[{"_target_": "planted.call"}]]},
    "Hydra's keys": lambda tmp: {"_target_": "torch.nn.LayerNorm", "_recursive_": True, "eps": 1e-5},
    "Hydra's arguments": lambda tmp: {"_target_": "torch.nn.LayerNorm", "_args_": [4]},
    "a name with a dot": lambda tmp: {"_target_": "randomized", "of._target_": "planted.call"},
    "a class's method": lambda tmp: {"_target_": "poslab.positions.rope.RoPE.__init__"},
    "no name": lambda tmp: {"_target_": ["planted.call"]},
}  # fmt: skip


class Evil:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.trace,)


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give a folder to work in, whose files make folders named trace* if they are run; at the end there are none."""
    (tmp_path / "planted.py").write_text(PLANTED.format(trace=str(tmp_path / "trace")))
    (tmp_path / "hubconf.py").write_text("from planted import call\n")
    torch.save({"x": Evil(tmp_path / "trace-pickle")}, tmp_path / "evil.pt")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not [*tmp_path.glob("trace*")]


def rewrite(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the description in every file of a run, as its author could."""
    settings = yaml.safe_load((run / "config.yaml").read_text())
    change(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    for name in ("best.safetensors", "last.ckpt"):
        file = run / "checkpoints" / name
        content = read_checkpoint(file)
        change(content["poslab"]["config"])
        if name.endswith("ckpt"):
            torch.save(content, file)
        else:
            save_weights(file, content["state_dict"], content["poslab"])


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("slot", ["pos", "norm", "mlp"])
def test_an_attack_in_the_files_of_a_run_or_an_export_runs_nothing(
    attack: str, slot: str, attacked: Path, trained: Callable[..., Path]
) -> None:
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    node = ATTACKS[attack](attacked)
    rewrite(run, lambda settings: settings.update(SLOTS[slot](node)))
    checkpoint = load_checkpoint(trained(*TINY, "pos=t5"))
    export(checkpoint, exported := attacked / "exported")
    about = read_checkpoint(trained(*TINY, "pos=t5") / "checkpoints" / "best.safetensors")["poslab"]
    about["config"].update(SLOTS[slot](node))
    save_weights(exported / "model.safetensors", checkpoint.model.state_dict(), about)
    (run / "text.txt").write_text("some text " * 100)
    attempts: list[Callable[[], object]] = [
        lambda: poslab.load(run),
        lambda: poslab.load(run / "checkpoints" / "best.safetensors"),
        lambda: poslab.load(run / "checkpoints" / "last.ckpt"),
        lambda: poslab.load(exported),
        lambda: evaluate_run(run, data_path=str(run / "text.txt")),
        lambda: resume(run, "trainer.max_epochs=3"),
    ]
    for attempt in attempts:
        with pytest.raises(UserError):
            attempt()


@pytest.mark.parametrize("slot", ["optim", "schedule", "callbacks", "logger"])
def test_an_attack_in_the_parts_of_a_run_that_is_resumed_runs_nothing(
    slot: str, attacked: Path, trained: Callable[..., Path]
) -> None:
    for number, attack in enumerate(ATTACKS.values()):
        shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / f"run{number}")
        node = attack(attacked)
        rewrite(run, lambda settings, node=node: settings.update(SLOTS[slot](node)))
        with pytest.raises(UserError, match=r"none of poslab's parts|keys that begin with _"):
            resume(run, "trainer.max_epochs=3")


def test_a_checkpoint_s_own_description_is_not_imported_where_config_yaml_is_sound(
    attacked: Path, trained: Callable[..., Path]
) -> None:
    """The files of a run may say different things."""
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    sound = (run / "config.yaml").read_text()
    rewrite(run, lambda settings: settings["model"].update(norm={"_target_": "planted.call"}))
    (run / "config.yaml").write_text(sound)
    for name in ("last.ckpt", "best.safetensors"):
        file = run / "checkpoints" / name
        content = read_checkpoint(file)
        content["poslab"]["model_fingerprint"] = "0" * 16
        if name == "last.ckpt":
            content["state"] |= {"best_val_loss": -1.0, "best_monitored": -1.0}  # so that the best weights stay
            torch.save(content, file)
        else:
            save_weights(file, content["state_dict"], content["poslab"])
    with pytest.raises(UserError, match=r"planted\.call"):  # they are evaluated at the end
        resume(run, "trainer.max_epochs=3", "evaluation.lengths=[8]")


def test_pages_about_a_stranger_s_runs_import_nothing(
    attacked: Path, trained: Callable[..., Path], capsys: pytest.CaptureFixture[str], no_figures: None
) -> None:
    from poslab.commands.explain import run_explanation

    for pos in ("t5", "alibi"):
        shutil.copytree(trained(*TINY, f"pos={pos}"), run := attacked / "runs" / pos)
        rewrite(run, lambda settings: settings["pos"].update(_target_="planted.call"))
        with pytest.raises(UserError, match=r"planted\.call"):
            run_explanation(ExplainConfig(ckpt=[str(run)]), "")
    report_of(attacked / "runs", measure=True)
    assert "planted.call" in capsys.readouterr().err


def test_values_are_not_looked_up_anywhere(
    attacked: Path, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ${oc.env:NAME} a run would carry a secret to where its files are shared."""
    monkeypatch.setenv("SECRET", "secret-of-the-user")
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    logger = {"_target_": "pytorch_lightning.loggers.CSVLogger", "name": "${oc.env:SECRET}"}
    rewrite(run, lambda settings: settings.update(logger={"csv": logger}))
    resume(run, "trainer.max_epochs=3")
    assert (run / "${oc.env:SECRET}").is_dir()
    assert not [*run.rglob("*secret-of-the-user*")]


@pytest.mark.parametrize(
    "settings",
    [
        {"_target_": "pytorch_lightning.loggers.CSVLogger", "save_dir": "/tmp/elsewhere"},
        {"_target_": "pytorch_lightning.loggers.CSVLogger", "name": "../../elsewhere"},
        {"_target_": "poslab.training.loggers.MLFlow", "tracking_uri": "http://example.com"},
        {"_target_": "poslab.training.loggers.Wandb", "offline": False},
        {"_target_": "poslab.training.loggers.Wandb", "settings": {"base_url": "https://example.com"}},
    ],
)
def test_a_logger_that_reaches_out_of_the_folder_is_the_user_s_to_name(settings: dict[str, Any]) -> None:
    description = RUN | {"logger": {"one": settings}}
    with pytest.raises(ValueError, match=r"logger\.one\.\w+.* reaches out of its folder; allow_code=true"):
        require_trusted(description)
    require_trusted(description, named=[settings["_target_"]])
    require_trusted(description, allow_code=True)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("path", ["hf://owner/name", "//host/share/text.txt", "\\\\host\\share\\text.txt"])
def test_a_stranger_s_data_are_not_fetched(
    path: str, attacked: Path, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    contacts: list[object] = []
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(f"socket.{name}", lambda *where, **settings: contacts.append(where))
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    rewrite(run, lambda settings: settings["data"].update(path=path, stride=None))
    with pytest.raises(UserError, match=re.escape(path)):
        evaluate_run(run)
    with refused("data.path", path):
        resume(run, "trainer.max_epochs=3")
    assert not contacts


@pytest.mark.usefixtures("no_network")
def test_a_folder_of_data_that_names_addresses_is_not_read_for_a_stranger(
    attacked: Path, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    (data := attacked / "data").mkdir()
    (data / "a.jsonl").write_text('{"text": "a"}\n')
    (data / "README.md").write_text("---\nconfigs:\n- config_name: a\n  data_files: https://example.com/a.jsonl\n---\n")
    rewrite(run, lambda settings: settings["data"].update(path=str(data)))
    with pytest.raises(UserError, match=r"README\.md names files elsewhere"):
        resume(run, "trainer.max_epochs=3")


@pytest.mark.parametrize(
    ("setting", "value"), [("document_separator", ""), ("column", [5]), ("validation_share", "much"), ("split", ["a"])]
)
def test_a_description_that_no_run_can_have_is_refused_in_a_line(
    setting: str, value: object, attacked: Path, trained: Callable[..., Path]
) -> None:
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    rewrite(run, lambda settings: settings["data"].update({setting: value}))
    with pytest.raises(UserError, match=rf"ckpt=.*{setting}="):
        evaluate_run(run)


def test_links_that_lead_out_of_a_run_are_the_user_s_to_follow(attacked: Path, trained: Callable[..., Path]) -> None:
    shutil.copytree(trained(*TINY, "pos=t5"), run := attacked / "run")
    (elsewhere := attacked / "elsewhere").mkdir()
    (elsewhere / "precious.tmp").write_text("kept")
    shutil.move(run / "checkpoints", elsewhere / "checkpoints")
    (elsewhere / "checkpoints" / "precious.tmp").write_text("kept")
    (run / "checkpoints").symlink_to(elsewhere / "checkpoints")
    with pytest.raises(UserError, match=r"checkpoints is a link to .*elsewhere.*allow_code=true"):
        resume(run, "trainer.max_epochs=3")
    assert (elsewhere / "checkpoints" / "precious.tmp").read_text() == "kept"
    resume(run, "trainer.max_epochs=3", "allow_code=true")


def test_a_compressed_checkpoint_is_not_unpacked(attacked: Path, trained: Callable[..., Path]) -> None:
    """A megabyte may unpack to any size."""
    whole, bomb = trained(*TINY, "pos=t5") / "checkpoints" / "last.ckpt", attacked / "bomb.ckpt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in source.infolist():
            packed.writestr(part.filename, source.read(part))
    with pytest.raises(SettingError, match="damaged"):
        poslab.load(bomb)


def test_a_description_without_end_is_refused() -> None:
    endless: dict[str, Any] = {"_target_": "nope"}
    endless["of"] = endless
    with pytest.raises(ValueError, match="too large, or refers to itself"):
        require_trusted(RUN | {"pos": endless})
    wide: list[Any] = ["x"]
    for _ in range(40):
        wide = [wide, wide]
    with pytest.raises(ValueError, match="too large"):
        require_trusted(RUN | {"pos": {"_target_": "layers", "layers": wide}})


def test_every_part_that_poslab_offers_is_trusted_in_a_run_of_its_own() -> None:
    for scheme in CONFIGS.glob("pos/*.yaml"):
        require_trusted(RUN | {"pos": node_of(parse_scheme(scheme.stem))})
    for group in ("optim", "schedule", "logger", "model/norm", "model/mlp"):
        for option in CONFIGS.glob(f"{group}/*.yaml"):
            require_trusted(compose_config(*TINY, f"{group}={option.stem}").plain)
    require_trusted(TASK)


def test_an_export_read_by_transformers_makes_poslab_s_parts_only(attacked: Path) -> None:
    pytest.importorskip("transformers")
    from poslab.hf.modeling_poslab import PoslabConfig, PoslabForCausalLM

    sizes = {"context_length": 8, "embed_dim": 8, "num_layers": 1, "num_heads": 1}
    for attack in ATTACKS.values():
        for settings in ({"model": sizes | {"norm": attack(attacked)}}, {"model": sizes, "pos": attack(attacked)}):
            with pytest.raises(ValueError, match=r"none of poslab's parts|keys that begin with _"):
                PoslabForCausalLM(PoslabConfig(vocab_size=4, **{"pos": {"_target_": "nope"}, **settings}))
