"""Which runs are of one group, which can't be compared, and what weakens a comparison."""

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from runs_to_compare import (
    VERDICT,
    change_config,
    change_summary,
    compare_folders,
    set_class,
    set_scheme,
    table_in,
    write_run,
)

from poslab.errors import UserError
from poslab.runs.groups import by_data, differences_beyond_the_scheme
from poslab.runs.load import read_runs


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.vocabulary", "full"),
        ("data.batch_size", 4),
        ("model.embed_dim", 64),
        ("optim.learning_rate", 0.01),
        ("trainer.precision", "bf16-mixed"),
        ("early_stopping_patience", 2),
    ],
)
def test_runs_that_differ_in_more_than_the_scheme(setting: str, value: Any, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    change_config(write_run(tmp_path, "t5"), setting, value)
    with pytest.raises(UserError) as refusal:
        compare_folders(tmp_path)
    assert re.search(rf"{setting}: \S+ \(as in absolute-seed1\), {value} \(as in t5-seed1\)", str(refusal.value))
    assert "allow_differences=true" in str(refusal.value)
    comparison = compare_folders(tmp_path, allow_differences=True)
    assert len(comparison.groups) == 2
    assert any(caveat.startswith(f"{setting} differs: ") for caveat in comparison.caveats)


def test_a_sweep_beside_another_run_is_named_first(tmp_path: Path) -> None:
    """As after the front page's commands, a run and a sweep, whose settings differ."""
    change_config(write_run(tmp_path, "t5"), "optim.learning_rate", 9e-3)
    for scheme in ("absolute", "t5"):
        write_run(tmp_path / "a sweep", scheme)
    with pytest.raises(UserError) as refusal:
        compare_folders(tmp_path)
    assert str(refusal.value).startswith(f"runs='{tmp_path}/a sweep' ")
    compare_folders(tmp_path / "a sweep")


def test_a_sweep_with_a_gap_says_which_combination_is_missing(tmp_path: Path) -> None:
    for scheme, rates in (("absolute", (1e-3, 2e-3, 4e-3, 8e-3)), ("t5", (1e-3, 2e-3, 4e-3))):
        for rate in rates:
            change_config(write_run(tmp_path / str(rate), scheme), "optim.learning_rate", rate)
    with pytest.raises(UserError) as refusal:
        compare_folders(tmp_path)
    listed = "optim.learning_rate: 0.001, 0.002, 0.004, 0.008; t5 has no run with optim.learning_rate=0.008"
    assert listed in str(refusal.value)
    change_config(write_run(tmp_path / "0.008", "t5"), "optim.learning_rate", 8e-3)
    compare_folders(tmp_path)


def test_of_many_differences_the_first_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    other = write_run(tmp_path, "t5")
    for setting in ("batch_size", "stride", "num_workers", "min_length", "max_length", "test_lengths", "symbols"):
        change_config(other, f"data.{setting}", 7)
    with pytest.raises(UserError) as refusal:
        compare_folders(tmp_path)
    assert str(refusal.value).count(" (as in ") == 2 * 5
    assert re.search(r"; and \d more; ", str(refusal.value))


@pytest.mark.parametrize(
    "facts",
    [
        {"params_trunk": 5}, {"vocabulary_size": 5}, {"steps": 7}, {"val_loss_tokens": 9}, {"validation_tokens": 7},
        {"test_tokens": 99, "test_loss": 4.0}, {"test_loss": 4.0},
    ],
)  # fmt: skip
def test_facts_that_differ(facts: dict[str, float], tmp_path: Path) -> None:
    """Losses of other tokens are never averaged."""
    write_run(tmp_path, "absolute", test_tokens=100)
    write_run(tmp_path, "t5", **{"test_tokens": 100} | facts)
    with pytest.raises(UserError, match=f"{next(iter(facts))}: "):
        compare_folders(tmp_path)


def test_each_text_is_compared_by_itself_unless_differences_are_allowed(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    write_run(tmp_path, "t5", data_sha256="0" * 64)
    runs, _ = read_runs([str(tmp_path)])
    assert {title: len(of) for title, of in by_data(runs).items()} == {
        f"the-verdict.txt sha256={VERDICT[:12]}": 1,
        "the-verdict.txt sha256=000000000000": 1,
    }
    assert by_data(runs, together=True) == {"the-verdict.txt": runs}
    assert "data_sha256" in differences_beyond_the_scheme(runs)


FACTOR = "position_learning_rate_factor"
RETRIEVAL = {"layer": 1, "size": 64, "k": 4, "position_bias": False}


@pytest.mark.parametrize(
    ("setting", "values", "shown"),
    [
        ("model.dropout", (0.0, 0.3), ("model.dropout=0.0", "model.dropout=0.3")),
        (f"optim.{FACTOR}", (1.0, 8.0), (f"{FACTOR}=1.0", f"{FACTOR}=8.0")),
        ("pos.max_distance", (2, 16), ("max_distance=2", "max_distance=16")),
        ("model.memory_length", (0, 8), ("memory_length=0", "memory_length=8")),
        ("model.retrieval", (None, RETRIEVAL), ("retrieval=null", "retrieval=true")),
        ("pos.kind", ("x" * 63 + "y", "x" * 64), (f"kind={'x' * 63}y", f"kind={'x' * 64}")),
    ],
)
def test_settings_make_groups(setting: str, values: tuple[Any, ...], shown: tuple[str, ...], tmp_path: Path) -> None:
    """Those of a scheme and of how it is trained by their names, others with their groups."""
    for seed, (number, value) in itertools.product((1, 2), enumerate(values)):
        folder = write_run(tmp_path / str(number), "shaw", seed)
        if setting.startswith("pos."):
            set_scheme(folder, **{setting.removeprefix("pos."): value})
        change_config(folder, setting, value)
    groups = compare_folders(tmp_path, allow_differences=True).groups
    assert {group.label: len(group.values) for group in groups} == {f"shaw {setting}": 2 for setting in shown}


def test_weights_to_begin_with_are_told_apart_by_their_contents(tmp_path: Path) -> None:
    first, second = (write_run(tmp_path / name, "t5") for name in ("first", "second"))
    for run, group in ((first, "rope-1234"), (second, "gpt2-5678")):
        change_config(run, "init_from", "/weights")
        change_config(run, "init_group", group)
    write_run(tmp_path, "t5")
    with pytest.raises(UserError, match=r"init_from: .*rope model \(1234\).*gpt2 model \(5678\).*none"):
        compare_folders(tmp_path)
    change_config(second, "init_group", "rope-1234")
    change_config(second, "init_from", "/elsewhere")
    change_config(second, "seed", 2)
    change_summary(second, seed=2)
    assert len(compare_folders(tmp_path / "first", tmp_path / "second").groups) == 1


def test_what_does_not_matter_makes_no_groups(tmp_path: Path) -> None:
    settings = {
        "run_dir": "elsewhere", "threads": 7, "data.path": "a copy", "data.cache_dir": "cache", "data.num_workers": 1,
        "model.attention_backend": "reference", "trainer.log_every_n_steps": 3, "sample.new_tokens": 99,
        "evaluation.lengths": [1, 2],
    }  # fmt: skip
    write_run(tmp_path, seed=1)
    other = write_run(tmp_path, seed=2, attention_backend="sdpa", wall_time_s=99.0)
    for setting, value in settings.items():
        change_config(other, setting, value)
    (group,) = compare_folders(tmp_path).groups
    assert [*group.values] == [1, 2]


def test_early_stopping_ends_runs_at_different_steps(tmp_path: Path) -> None:
    for pos, steps in (("absolute", 6), ("t5", 4)):
        change_config(write_run(tmp_path, pos, steps=steps), "early_stopping_patience", 2)
    assert len(compare_folders(tmp_path).groups) == 2


@pytest.mark.parametrize("values", [(1, 1.0, True), (None, "None"), ([1], [1.0])])
def test_values_that_python_takes_for_equal(values: tuple, tmp_path: Path) -> None:
    for number, value in enumerate(values):
        set_scheme(write_run(tmp_path / str(number), "t5"), scale=value)
    comparison = compare_folders(tmp_path)
    assert len({group.label for group in comparison.groups}) == len(comparison.groups) == len(values)
    assert not table_in(tmp_path).left_out


def test_two_schemes_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    write_run(tmp_path / "own", "t5", 1)
    set_class(write_run(tmp_path / "other", "t5", 2), "mine.T5")
    labels = {group.label for group in compare_folders(tmp_path).groups}
    assert labels == {"t5 _target_=poslab.positions.t5.T5", "t5 _target_=mine.T5"}


@pytest.mark.parametrize("target", ["my_file.T5", "poslab.positions.t5.T5"])
def test_seeds_of_an_edited_scheme_are_no_group(target: str, tmp_path: Path) -> None:
    for seed, source in ((1, "aa"), (2, "aa"), (3, "bb")):
        set_class(write_run(tmp_path, "t5", seed, scheme_fingerprint=source), target)
    groups = {group.label: len(group.values) for group in compare_folders(tmp_path).groups}
    assert groups == {"t5 source=aa": 2, "t5 source=bb": 1}


def test_a_crossed_factor_is_compared_without_being_asked(tmp_path: Path) -> None:
    """Options of a group are one factor by their name; where a scheme lacks one of them, runs can't be compared."""
    for option, pos, seed in itertools.product(("mini", "modern"), ("absolute", "t5"), (1, 2)):
        folder = write_run(tmp_path / option, pos, seed)
        change_config(folder, "overrides", [f"model={option}", f"pos={pos}"])
        if option == "modern":
            change_config(folder, "model.qk_norm", "rms")
            change_config(folder, "model.biases", False)
            change_summary(folder, params_trunk=1)
    one = compare_folders(tmp_path)
    both = itertools.product(("absolute", "t5"), ("mini", "modern"))
    assert {(group.name, group.settings["model"]) for group in one.groups} == {*both}
    assert not any("." in name or name == "params_trunk" for group in one.groups for name in group.settings)
    assert not any("differs" in caveat for caveat in one.caveats)
    for seed in (1, 2):
        shutil.rmtree(tmp_path / "modern" / f"t5-seed{seed}")
    with pytest.raises(UserError, match="allow_differences=true"):
        compare_folders(tmp_path)


def test_an_option_within_a_group_is_a_factor_by_its_name(tmp_path: Path) -> None:
    """As a claim on an interaction calls it: between: {model/norm: [layer, rms]}."""
    nodes = {
        "layer": {"_target_": "torch.nn.LayerNorm", "eps": 1e-5},
        "rms": {"_target_": "torch.nn.RMSNorm", "eps": 1e-6},
    }
    for (option, node), pos, seed in itertools.product(nodes.items(), ("absolute", "t5"), (1, 2)):
        folder = write_run(tmp_path / option, pos, seed)
        change_config(folder, "overrides", [f"model/norm={option}", f"pos={pos}"])
        change_config(folder, "model.norm", node)
    groups = compare_folders(tmp_path).groups
    assert {(group.name, group.settings["model/norm"]) for group in groups} == {
        *itertools.product(("absolute", "t5"), nodes)
    }
    assert not any("." in name for group in groups for name in group.settings)
    assert all(any(group.is_named(f"{pos} model/norm=rms") for group in groups) for pos in ("absolute", "t5"))


def test_a_part_of_ones_own_is_a_factor_unless_it_was_edited(tmp_path: Path) -> None:
    norms = {"torch.nn.RMSNorm": None, "my_file.Norm": "aa"}
    for (norm, source), pos, seed in itertools.product(norms.items(), ("absolute", "t5"), (1, 2)):
        folder = write_run(tmp_path / norm, pos, seed)
        change_config(folder, "overrides", [f"model.norm._target_={norm}", f"pos={pos}"])
        change_config(folder, "model.norm", {"_target_": norm})
        change_config(folder, "parts_fingerprint", source)
    assert {group.label for group in compare_folders(tmp_path).groups} == {
        f"{pos} model.norm._target_={norm}" for pos, norm in itertools.product(("absolute", "t5"), norms)
    }
    change_config(tmp_path / "my_file.Norm/t5-seed2", "parts_fingerprint", "bb")
    with pytest.raises(UserError, match="parts_fingerprint"):
        compare_folders(tmp_path)


def test_an_option_names_what_follows_from_it_beside_typed_settings(tmp_path: Path) -> None:
    """A typed setting stays a condition of its own, though another option changes it, too."""
    arms = {"mini": ["model=mini"], "modern": ["model=modern"], "typed": ["model=mini", "model.qk_norm=rms"]}
    for (arm, overrides), pos in itertools.product(arms.items(), ("absolute", "t5")):
        for seed in (1, 2):
            folder = write_run(tmp_path / arm, pos, seed)
            change_config(folder, "overrides", [*overrides, f"pos={pos}"])
            change_config(folder, "model.qk_norm", "none" if arm == "mini" else "rms")
            change_config(folder, "model.biases", arm != "modern")
    names = {(group.settings["model"], group.settings["model.qk_norm"]) for group in compare_folders(tmp_path).groups}
    assert names == {("mini", "none"), ("mini", "rms"), ("modern", "rms")}
    shutil.rmtree(tmp_path / "mini" / "t5-seed1")
    shutil.rmtree(tmp_path / "mini" / "t5-seed2")
    caveats = compare_folders(tmp_path, allow_differences=True).caveats
    assert "model differs: mini, modern" in caveats
