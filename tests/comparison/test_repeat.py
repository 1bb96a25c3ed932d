"""The command on the page that repeats a scheme's runs: what was typed, as their configurations record it."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from runs_to_compare import change_config, repeated, report_of, runs_by_group, write_run

from poslab.comparison.repeat import command_of
from poslab.config.files import CONFIGS
from poslab.config.overrides import parse_arguments, unquoted
from poslab.config.train import parse


def command_in(root: Path) -> str:
    (runs,) = runs_by_group(root).values()
    return command_of(runs)


def recorded(*typed: str) -> dict[str, Any]:
    """The config.yaml of a run of the command line."""
    arguments = parse_arguments(typed)[1]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return parse(compose("train", arguments), "t5", [unquoted(argument) for argument in arguments]).recorded


def write_recorded(root: Path, seed: int, config: dict[str, Any]) -> None:
    """A run whose config.yaml that is."""
    settings = {name: value for name, value in config["pos"].items() if name != "_target_"}
    folder = write_run(root, "t5", seed, context_length=config["model"]["context_length"], pos_settings=settings)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize(
    "typed",
    [
        ("pos=t5",),
        ("experiment=smoke", "pos=t5", "pos.num_buckets=8", "data.stride=16", "optim.learning_rate=3e-5"),
        ("pos=t5", "evaluation.lengths=[8,16]", "trainer.gradient_clip_val=null", "trainer.max_time=00:12:00:00"),
        ("pos=t5", "sample.prompt=It's a \"test\", isn't it? (a=b) \\' # [1]"),
        ("pos=t5", "sample.prompt='in quotes', ${not_a_name} \\${x}"),
        ("pos=t5", "sample.prompt= \\"),
        ("pos=t5", "sample.prompt=${odd"),
        ("pos=t5", "sample.prompt=漢字\n$HOME `x`"),
    ],
)
def test_command_repeats_the_run(typed: tuple[str, ...], tmp_path: Path) -> None:
    config = recorded(*typed, "seed=3", "run_dir=elsewhere", "threads=1")
    write_recorded(tmp_path, 3, config)
    command = command_in(tmp_path)
    assert repeated(command) | {"threads": 1} == {k: v for k, v in config.items() if k not in ("pos_name", "overrides")}
    assert shlex.split(command)[2:] == [*typed, "seed=3"]


def test_one_command_for_all_seeds(tmp_path: Path) -> None:
    for seed in (2, 1, 11):
        overrides = ["pos=shaw", f"seed={seed}", f"run_dir='runs/shaw {seed}'"]
        change_config(write_run(tmp_path, "shaw", seed), "overrides", overrides)
    assert command_in(tmp_path) == "poslab train -m pos=shaw seed=1,2,11"


def test_a_path_that_only_quotes_make_one(tmp_path: Path) -> None:
    text = tmp_path / "my 'texts', all" / "some.txt"
    text.parent.mkdir()
    text.write_text("other words\n")
    for seed in (1, 2):
        config = recorded("pos=t5", "data=text", f"data.path={text}", f"seed={seed}")
        write_recorded(tmp_path / "runs", seed, config)
    command = command_in(tmp_path / "runs")
    assert "-m" in command
    assert repeated(command)["data"]["path"] == str(text)


@pytest.mark.usefixtures("no_figures")
def test_what_is_not_recorded_is_not_guessed(tmp_path: Path) -> None:
    """The page still shows the complete configuration."""
    for seed in (1, 2):
        change_config(write_run(tmp_path, "t5", seed), "overrides", None)
    folder = report_of(tmp_path)
    text = (folder / "report.md").read_text()
    assert "\n    t5: not recorded\n" in text
    assert "context_length: 32" in (folder / "report.html").read_text()
