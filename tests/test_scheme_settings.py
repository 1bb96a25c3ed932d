"""Schemes as settings: chosen by a class or by a name, with settings of their own, and refused in one line."""

from pathlib import Path

import pytest

from conftest import RunScript, compose_config
from poslab.errors import SettingError
from poslab.settings.schemes import parse_scheme

TRAIN = ("experiment=smoke", "trainer=cpu", "data.vocabulary=observed")

HEAD = """
from dataclasses import dataclass
from typing import Literal
from poslab.positions import PositionScheme, RelativeTerms
"""

# What an author writes into a file, and what the one line says of it; settings of the command line come first.
MISTAKES = {
    "no dataclass": ("", "class Mine(PositionScheme): pass", "a scheme must be a frozen dataclass"),
    "not frozen": ("", "@dataclass\nclass Mine(PositionScheme): pass", "a scheme must be a frozen dataclass"),
    "derived, undecorated": (
        "",
        "@dataclass(frozen=True)\nclass Base(PositionScheme): pass\nclass Mine(Base): size: int = 3",
        "a scheme must be a frozen dataclass",
    ),
    "misspelt hook": (
        "",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n"
        "    def relativ(self, tables, shape, layer, distances): return None",
        "Mine.relativ is no hook (did you mean relative?); hooks are ",
    ),
    "field hides a hook": (
        "",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    tables: int = 3",
        "Mine.tables hides the hook of that name",
    ),
    "a type that no setting has": (
        "",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    kernel: Literal['log', 'power'] = 'log'",
        "pos.kernel=: has a type that no setting can have; valid: ",
    ),
    "refused by its own check": (
        "pos.size=9",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    size: int = 3\n"
        "    def __post_init__(self):\n        if self.size > 4: raise ValueError('too large')",
        "refuses its settings: too large",
    ),
    "no default, not given": (
        "",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    size: int",
        "pos.size=: must be given (a whole number)",
    ),
    "unknown setting": (
        "pos.sise=9",
        "@dataclass(frozen=True)\nclass Mine(PositionScheme):\n    size: int = 3\n    kernel: str = 'log'",
        "pos.sise=9: unknown setting; did you mean size? valid: size, kernel",
    ),
    "syntax": ("", "class Mine(:", "can't be imported: invalid syntax"),
    "no such class": ("", "class Other: pass", "can't be imported: module "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_author_s_mistake_is_one_line(
    mistake: str, run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, source, problem = MISTAKES[mistake]
    module = f"mistake_{list(MISTAKES).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(HEAD + source)
    monkeypatch.chdir(tmp_path)
    code, output, complaint = run_script("train", *TRAIN, f"pos._target_={module}.Mine", *settings.split())
    assert (code, output, complaint.count("\n")) == (2, "", 1)
    assert problem in complaint
    assert complaint.startswith(("error: pos._target_=", "error: pos.s", "error: pos.kernel="))
    assert not (tmp_path / "runs").exists()


def test_a_class_on_the_command_line_brings_its_own_settings() -> None:
    """What the option of `pos` had is another class's."""
    target = "pos._target_=poslab.positions.t5.T5"
    assert compose_config(target, "pos.num_buckets=8").pos == parse_scheme({"_target_": "t5", "num_buckets": 8})
    assert compose_config("pos=shaw", "pos.num_buckets=8", target).pos_settings["num_buckets"] == 8
    with pytest.raises(SettingError, match=r"pos\.keys=false: unknown setting; valid: num_buckets"):
        compose_config("pos=shaw", "pos.keys=false", target)


def test_names_stand_for_classes() -> None:
    assert parse_scheme("t5") == parse_scheme({"_target_": "poslab.positions.t5.T5"})
    with pytest.raises(SettingError, match=r"^pos=t6: unknown; did you mean t5\? valid: absolute"):
        parse_scheme("t6")
    with pytest.raises(SettingError, match=r"^pos\._target_=t6: unknown; did you mean t5\?"):
        parse_scheme({"_target_": "t6"})
    with pytest.raises(SettingError, match=r"^pos\._target_=: must be given"):
        parse_scheme({"num_buckets": 8})
    with pytest.raises(SettingError, match=r"^pos=5: must be a scheme"):
        parse_scheme(5)
