"""Schemes as settings: chosen by a class or by a name, with settings of their own, and refused in one line."""

import json
import re
from pathlib import Path

import pytest
import yaml
from common import ALIBI, compose_config
from refusals import refused
from runs_to_compare import change_config, compare, write_run
from runs_to_resume import TINY, resume

from poslab import load
from poslab.config.groups import flat
from poslab.config.nodes import default_settings, distinguishing, shown, with_settings
from poslab.config.schemes import node_of, parse_scheme
from poslab.errors import SettingError
from poslab.positions.canon import Canon
from poslab.positions.combined import Combined
from poslab.positions.layers import Entry, Layers
from poslab.positions.nope import NoPE
from poslab.positions.randomized import Randomized
from poslab.positions.rope import RoPE
from poslab.positions.rope_t5 import RoPET5
from poslab.positions.t5 import T5
from poslab.runs.checkpoint_files import read_checkpoint, save_weights
from poslab.runs.code import fingerprints
from poslab.runs.load import read_runs
from poslab.sweep.job_list import identity
from poslab.training.summary import flat_settings
from poslab.training.train import train

HEAD = """
from dataclasses import dataclass
from typing import Literal
from poslab.positions import PositionScheme
"""
FROZEN = "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    "

# What an author writes into a file, and what the one line says of it.
MISTAKES = {
    "no dataclass": ("class Mine(PositionScheme): pass", "a scheme must be a frozen dataclass"),
    "not frozen": ("@dataclass\nclass Mine(PositionScheme): pass", "a scheme must be a frozen dataclass"),
    "misspelt hook": (
        f"{FROZEN}def relativ(self, tables, shape, layer, distances): return None",
        "Mine.relativ is no hook (did you mean relative?); hooks are ",
    ),
    "a type that isn't there": (
        f"{FROZEN}kernel: 'Kernel' = None",
        "has settings that can't be checked: ",
    ),
    "refused by its own check": (
        f"{FROZEN}def __post_init__(self): raise ValueError('too large')",
        "refuses its settings: too large",
    ),
    "syntax": ("class Mine(:", "can't be imported: invalid syntax"),
    "no such class": ("class Other: pass", ".py has no Mine"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_author_s_mistake_is_one_line(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, problem = MISTAKES[mistake]
    module = f"mistake_{list(MISTAKES).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(HEAD + source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match=re.escape(problem)) as refusal:
        compose_config("pos=own", f"pos._target_={module}.Mine")
    assert str(refusal.value).startswith((f"pos._target_={module}.Mine: ", f"pos={module}.Mine: "))
    assert "\n" not in str(refusal.value)


def test_a_name_that_is_no_class_of_a_file_leads_to_those_that_the_file_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misspelt.py").write_text(f"{HEAD}{FROZEN}pass".replace("class Mine(", "class MyScheme("))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError) as refusal:
        compose_config("pos=own", "pos._target_=misspelt.Mine")
    assert refusal.value.problem.endswith(("no Mine", "MyScheme?", "valid: MyScheme"))
    with pytest.raises(SettingError, match=r"did you mean MyScheme\?(?!.*PositionScheme)"):
        compose_config("pos=own", "pos._target_=misspelt.Myscheme")


def test_a_class_on_the_command_line_brings_its_own_settings() -> None:
    target = "pos._target_=poslab.positions.t5.T5"
    given = [target, "pos=own", "pos.num_buckets=8"]
    assert compose_config(*given).pos == parse_scheme({"_target_": "t5", "num_buckets": 8})
    with refused("pos.keys", "false", "num_buckets"):
        compose_config("pos=own", "pos.keys=false", target)
    for other in ([], ["pos=shaw"]):
        with refused("pos._target_", "poslab.positions.t5.T5", "pos=own"):
            compose_config(target, *other)


def test_names_stand_for_classes() -> None:
    assert parse_scheme("t5") == parse_scheme({"_target_": "poslab.positions.t5.T5"})
    with refused("pos._target_", ""):
        parse_scheme({"num_buckets": 8})


# Schemes as settings of schemes.

TYPED = {
    "a name": (("pos=randomized", "pos.of=t5"), Randomized(T5())),
    "a setting": (("pos=randomized", "pos.of.base=500", "pos.max_position=300"), Randomized(RoPE(500.0), 300)),
    "in the other order": (("pos.of.scale=2", "pos.of=t5", "pos=randomized"), Randomized(T5(scale=2.0))),
    "a class": (
        ("pos=randomized", "pos.of._target_=poslab.positions.t5.T5", "pos.of.scale=2"),
        Randomized(T5(scale=2.0)),
    ),
    "one of two in another": (
        ("pos=randomized", "pos.of=rope_t5", "pos.of.second.max_distance=64"),
        Randomized(RoPET5(second=T5(max_distance=64))),
    ),
    "a class of two": (
        (
            "pos=own",
            "pos._target_=poslab.positions.combined.Combined",
            "pos.first=rope",
            "pos.second=t5",
            "pos.second.scale=2",
        ),
        Combined(RoPE(), T5(scale=2.0)),
    ),
    "a list": (("pos=layers", "pos.layers=[rope,nope]"), Layers((Entry(RoPE()), Entry(NoPE())))),
    "a node in a list": (
        ("pos=layers", "pos.layers=[{_target_: rope, base: 500, window: 8},nope]"),
        Layers((Entry(RoPE(500.0), 8), Entry(NoPE()))),
    ),
    "a list within another scheme": (
        ("pos=randomized", "pos.of=layers", "pos.of.layers=[rope,{_target_: canon, of: t5}]"),
        Randomized(Layers((Entry(RoPE()), Entry(Canon(T5()))))),
    ),
    "a list of a class": (
        ("pos=own", "pos._target_=poslab.positions.layers.Layers", "pos.layers=[{_target_: rope, base: 500},nope]"),
        Layers((Entry(RoPE(500.0)), Entry(NoPE()))),
    ),
}


@pytest.mark.parametrize("typed", TYPED)
def test_schemes_are_chosen_by_name_or_class_in_any_order(typed: str) -> None:
    overrides, scheme = TYPED[typed]
    config = compose_config(*overrides)
    assert config.pos == scheme
    assert parse_scheme(yaml.safe_load(yaml.safe_dump(config.recorded))["pos"]) == scheme
    assert json.loads(json.dumps(config.plain)) == config.plain


@pytest.mark.parametrize("typed", [name for name in TYPED if "pos._target_" not in str(TYPED[name])])
def test_other_commands_read_the_same_schemes(typed: str) -> None:
    """In any order, and beside the node of a run."""
    overrides, scheme = TYPED[typed]
    given = {}
    for override in overrides:
        name, text = override.split("=", 1)
        given["_target_" if name == "pos" else name.removeprefix("pos.")] = text
    assert parse_scheme(with_settings({}, given)) == scheme
    others = {name: text for name, text in given.items() if name != "_target_"}
    assert parse_scheme(with_settings(node_of(parse_scheme(given["_target_"])), others)) == scheme


PLACES = {
    "pos.layers.1=rop": ("pos.layers=[rope,rop]", "unknown; did you mean rope"),
    "pos.layers.1.bas=3": ("pos.layers=[rope,{_target_: rope, bas: 3}]", "unknown setting; "),
    "pos.layers.0.window=true": ("pos.layers=[{_target_: rope, window: true}]", "must be a whole number"),
    "pos.layers.0.window=0": ("pos.layers=[{_target_: rope, window: 0}]", "must be at least 1"),
    "pos.layers.0=poslab.positions.t5.T5": ("pos.layers=[poslab.positions.t5.T5]", "names a class, which is given as"),
    "pos.layers=[]": ("pos.layers=[]", "must have at least one scheme"),
    "pos.layers=rope": ("pos.layers=rope", "must be a list"),
}


@pytest.mark.parametrize("named", PLACES)
def test_an_entry_is_refused_by_its_place(named: str) -> None:
    typed, problem = PLACES[named]
    with pytest.raises(SettingError, match=rf"^{re.escape(f'{named}: {problem}')}"):
        compose_config("pos=layers", typed)


def test_an_entry_has_one_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "has_window.py").write_text(f"{HEAD}{FROZEN}window: int = 3")
    monkeypatch.syspath_prepend(tmp_path)
    with refused("pos.layers.0.window", "null"):
        parse_scheme({"_target_": "layers", "layers": [{"_target_": "has_window.Mine"}]})


def test_how_they_are_shown() -> None:
    config = compose_config("pos=randomized", "pos.of=t5")
    assert list(flat(config.plain))[:3] == ["pos._target_", "pos.of._target_", "pos.of.num_buckets"]
    assert shown(config.pos_settings)["of"] == "t5"
    assert shown({"of": {"_target_": "my_file.Mine", "size": 3}}) == {"of": "my_file.Mine", "of.size": 3}
    shown_by_tensorboard = flat_settings(config)
    assert shown_by_tensorboard["pos.max_position"] == 2048
    assert shown_by_tensorboard["pos.other"].startswith("of=t5, of.num_buckets=32, ")
    assert shown_by_tensorboard.keys() == flat_settings(compose_config("pos=absolute")).keys()


def test_how_a_list_is_shown() -> None:
    config = compose_config("pos=layers", "pos.layers=[t5,{_target_: nope, window: 9}]")
    settings = shown(config.pos_settings)
    assert (settings["layers"], settings["layers.0"]) == (["t5", "nope"], "t5")
    assert (settings["layers.0.scale"], settings["layers.1.window"]) == (1.0, 9)
    assert flat_settings(config).keys() == flat_settings(compose_config("pos=absolute")).keys()
    assert default_settings("rope_nope")["layers.0.base"] == 10000.0
    assert default_settings("rope_nope").items() >= shown(compose_config("pos=rope_nope").pos_settings).items()
    nodes = [compose_config("pos=layers", f"pos.layers={names}").pos_settings for names in ("[rope,nope]", "[rope]")]
    assert distinguishing(shown(nodes[1]), [shown(nodes[0])]) == ["layers=[rope]"]


def test_jobs_with_other_schemes_within_are_other_jobs() -> None:
    same = {identity(compose_config("pos=randomized", *more)) for more in ((), ("pos.of=rope",), ("pos.of.base=1e4",))}
    other = {identity(compose_config("pos=randomized", more)) for more in ("pos.of=t5", "pos.of.base=500")}
    assert len(same) == 1
    assert len(same | other) == 3
    lists = ("[rope,nope]", "[nope,rope]", "[rope,rope,nope]", "[{_target_: rope, window: 9},nope]")
    assert len({identity(compose_config("pos=layers", f"pos.layers={names}")) for names in lists}) == len(lists)


def test_a_trained_pattern_takes_other_settings_by_place(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(compose_config(*TINY, "pos=layers", "pos.layers=[rope,t5]", f"run_dir={run}"))
    scaled = load(run, settings={"layers.0.scaling": "linear", "layers.0.factor": 4, "layers.1.window": 9}).pos
    assert scaled == Layers((Entry(RoPE(scaling="linear", factor=4.0)), Entry(T5(), 9)))
    assert load(run, settings={"layers": ["rope", "t5", "rope"]}).pos == Layers((*map(Entry, (RoPE(), T5(), RoPE())),))
    for settings, problem in (
        ({"layers": ["rope"]}, r"pos\.layers=\[rope\]: needs the learned tables none; this run learned 1_bias"),
        ({"layers.7.base": 500}, r"pos\.layers\.7=\{base: 500\}: is no place of the list"),
    ):
        with pytest.raises(SettingError, match=problem):
            load(run, settings=settings)
    resume(run, "trainer.max_epochs=3", "pos.layers.0.base=10000")
    with pytest.raises(SettingError, match=r"pos\.layers\.0\.base=500 .*10000"):
        resume(run, "trainer.max_epochs=4", "pos.layers.0.base=500")


def test_labels_tell_what_differs_and_no_more(tmp_path: Path) -> None:
    for seed, overrides in enumerate((["pos.of=rope"], ["pos.of=t5"], ["pos.of=t5", "pos.of.scale=2"])):
        settings = compose_config("pos=randomized", *overrides).pos_settings
        run = write_run(tmp_path, "randomized", seed + 1, pos_settings=settings)
        change_config(run, "pos", {"_target_": "poslab.positions.randomized.Randomized"} | settings)
    labels = {group.label for group in compare(read_runs([str(tmp_path)])[0]).groups}
    assert labels == {"randomized of=rope", "randomized of=t5 of.scale=1.0", "randomized of=t5 of.scale=2.0"}


def test_a_scheme_of_a_stranger_within_one_of_poslab_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    (tmp_path / "within_file.py").write_text(ALIBI)
    monkeypatch.syspath_prepend(tmp_path)
    config = compose_config(*TINY, "pos=randomized", "pos.of._target_=within_file.MyALiBi", f"run_dir={run}")
    summary = train(config)
    assert (summary.pos, summary.pos_settings["of"]["_target_"]) == ("randomized", "within_file.MyALiBi")
    assert summary.scheme_fingerprint != fingerprints(parse_scheme("randomized"))["scheme_fingerprint"]
    for attempt in (lambda: load(run), lambda: resume(run, "trainer.max_epochs=3")):
        with pytest.raises(SettingError, match=r"within_file\.MyALiBi"):
            attempt()
    assert load(run, allow_code=True).pos == config.pos
    resume(run, "trainer.max_epochs=3", "pos.of._target_=within_file.MyALiBi")  # named, so it may be imported


def test_classes_a_checkpoint_names_within_a_scheme_are_texts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(compose_config(*TINY, "pos=randomized", f"run_dir={run}"))
    content = read_checkpoint(run / "checkpoints" / "best.safetensors")
    for wrong in (None, 5, ["os.system"], "os.system"):
        content["poslab"]["config"]["pos"]["of"]["_target_"] = wrong
        save_weights(run / "checkpoints" / "best.safetensors", content["state_dict"], content["poslab"])
        with pytest.raises(SettingError, match=r"^ckpt=\S+: its scheme is (None|5|.*os\.system)"):
            load(run)
    for pos in ({"of": "os.system"}, {"_target_": "layers", "layers": ["nope", {"_target_": "os.system"}]}):
        content["poslab"]["config"]["pos"] = {"_target_": "randomized"} | pos
        save_weights(run / "checkpoints" / "best.safetensors", content["state_dict"], content["poslab"])
        with pytest.raises(SettingError, match=r"names a class|os\.system"):
            load(run)
