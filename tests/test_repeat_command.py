"""The command on the page that repeats a scheme's runs."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from conftest import ALIBI
from poslab.comparison.report import command_of
from runs_to_compare import change_config, change_summary, group_of, repeated, report_of, set_scheme, write_run


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data.stride": 16, "trainer.max_steps": 7, "optim.learning_rate": 3e-05, "early_stopping_patience": 3},
        {"evaluation.lengths": [8, 16], "trainer.gradient_clip_val": None, "trainer.deterministic": True},
        {"sample.prompt": "It's a \"test\", isn't it? (a=b) \\' # [1]", "trainer.max_time": "00:12:00:00"},
        {"sample.prompt": " \\", "trainer.precision": "32", "trainer.limit_val_batches": 1.0},
        {"sample.prompt": "null"},
        {"sample.prompt": "'in quotes', ${not_a_name} \\${x}"},
        {"sample.prompt": "漢字\n$HOME `x`"},
    ],
)
def test_command_repeats_the_run(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = write_run(tmp_path, "t5", 3)
    plain = yaml_with(folder, settings)
    set_scheme(folder, num_buckets=8)
    plain["pos"]["num_buckets"] = 8
    again = repeated(command_of(group_of(tmp_path)))
    assert again | {"pos_name": "t5", "seed": 3} == plain
    assert again["seed"] == 3


def yaml_with(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Changes config.yaml; returns what it then says."""
    plain: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    for setting, value in settings.items():
        *groups, name = setting.split(".")
        (plain[groups[0]] if groups else plain)[name] = value
    (folder / "config.yaml").write_text(json.dumps(plain))  # which is YAML, too
    return plain


def test_command_for_all_seeds(tmp_path: Path) -> None:
    for seed in (2, 1, 11):
        write_run(tmp_path, "shaw", seed)
    words = shlex.split(command_of(group_of(tmp_path)))
    assert words[2:4] == ["-m", "pos=shaw"]
    assert words[-1] == "seed=1,2,11"


def test_command_for_another_text(tmp_path: Path) -> None:
    text = tmp_path / "my 'texts', all" / "the-verdict.txt"  # a name that a bundled text has
    text.parent.mkdir()
    text.write_text("other words\n")
    folder = write_run(tmp_path / "runs", "absolute", data_sha256="0" * 64)
    change_config(folder, "data.path", str(text))
    command = command_of(group_of(tmp_path / "runs"))
    assert "data=text" in command
    assert repeated(command)["data"]["path"] == str(text)


def test_command_for_a_bundled_text_names_no_folder(tmp_path: Path) -> None:
    change_config(write_run(tmp_path), "data.path", "/somebody/elses/the-verdict.txt")
    command = command_of(group_of(tmp_path))
    assert "data=verdict" in command
    assert "elses" not in command


def test_command_for_a_scheme_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ALIBI
    (tmp_path / "scheme_of_somebody.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("alibi", "t5"):  # also under a name that configs/pos knows
        folder = write_run(tmp_path / name, "absolute")
        change_summary(folder, pos=name, pos_settings={"steepest": 0.5})
        plain = yaml_with(folder, {"pos": {"_target_": "scheme_of_somebody.ALiBi", "steepest": 0.5}})
        again = repeated(command_of(group_of(tmp_path / name)))
        assert again["pos"] == plain["pos"]


@pytest.mark.usefixtures("no_figures")
def test_nothing_repeats_what_no_configuration_describes(tmp_path: Path) -> None:
    (write_run(tmp_path, "absolute", pos_target="a b=c") / "config.yaml").unlink()
    (write_run(tmp_path, "t5", 1) / "config.yaml").unlink()
    change_config(write_run(tmp_path, "t5", 2), "model.dropout", 0.3)
    text = (report_of(tmp_path) / "report.md").read_text()
    assert "absolute:\n\n    unknown, as there is no config.yaml\n" in text
    assert re.search(r"t5:\n\n    python .* model.dropout=0.3 .*seed=1,2\n", text)
