"""What command lines of train mean: every scheme, task, text, experiment and part gives the settings recorded beside.

`python tests/config/test_composed.py` records them anew. The first line stands with all its settings, each other with
those in which it differs from the first.
"""

import shlex
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from poslab.commands.train import run_train
from poslab.config.files import BUNDLED
from poslab.config.groups import flat

RECORDED = Path(__file__).with_name("composed.yaml")
LINES: dict[str, dict[str, Any]] = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
FIRST = next(iter(LINES))
ABSENT = "(not there)"


def composed_by(line: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a command line by their names, as a run would record them."""
    configs: list[Any] = []
    monkeypatch.setattr("poslab.training.train.train", configs.append)
    monkeypatch.setattr("poslab.commands.train._swept_settings", lambda *_: [])  # one run of each experiment
    GlobalHydra.instance().clear()
    run_train(shlex.split(line))
    (config,) = configs
    settings = flat(config.recorded)
    del settings["overrides"]
    return {name: _anywhere(value) for name, value in settings.items()}


def _anywhere(value: Any) -> Any:
    """Return a value without the places of this checkout and this Python."""
    if not isinstance(value, str):
        return value
    return value.replace(str(BUNDLED), "CHECKOUT").replace(sysconfig.get_path("stdlib"), "PYTHON")


def difference(settings: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in settings.items() if name not in first or _differ(first[name], value)}
    return changed | {name: ABSENT for name in first if name not in settings}


def _differ(before: Any, now: Any) -> bool:
    """Return whether two values differ in value or type: 1 is neither 1.0 nor true."""
    return repr(before) != repr(now)


@pytest.mark.parametrize("line", LINES)
def test_the_settings_of_a_command_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = composed_by(line, monkeypatch)
    if line != FIRST:
        settings = difference(settings, LINES[FIRST])
    assert difference(settings, LINES[line]) == {}


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        every = {line: composed_by(line, patch) for line in LINES}
    for line in LINES:
        if line != FIRST:
            every[line] = difference(every[line], every[FIRST])
    RECORDED.write_text(yaml.safe_dump(every, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
