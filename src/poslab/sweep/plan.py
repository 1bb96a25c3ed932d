"""What a sweep will run: its jobs, and the folder that each has by what it computes."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from poslab.errors import SettingError, UserError
from poslab.runs.folder import RUNS, RunFolder
from poslab.settings.composed import explain, scheme_name
from poslab.settings.files import fingerprint
from poslab.settings.roles import NOT_IDENTITY
from poslab.settings.train import TrainConfig, flat, parse


@dataclass(frozen=True)
class Job:
    """One combination. The folder's name ends in a hash of all settings and the text, so that the same job finds its
    run again, and another one never does."""

    overrides: list[str]
    folder: Path
    problem: str | None = None  # why it can't run
    impossible: bool = False  # because the scheme refuses this combination of its settings, as some of any grid are

    @property
    def finished(self) -> bool:
        return RunFolder(self.folder).finished


def sweep_folder(config: DictConfig) -> Path:
    """`run_dir`, or runs/<experiment>, or runs."""
    if config.run_dir is not None:
        return Path(os.path.expanduser(str(config.run_dir)))
    experiment = config.hydra.runtime.choices.get("experiment")
    return RUNS / experiment if experiment else RUNS


def plan(combinations: Sequence[Sequence[str]], config: DictConfig, loader: ConfigLoader) -> list[Job]:
    """A job for each combination of overrides, without those that repeat another."""
    folder = sweep_folder(config)
    varied = _varied(combinations)
    jobs = [_plan_job(list(overrides), varied, folder, config, loader) for overrides in combinations]
    return list({job.folder: job for job in jobs}.values())


def identity(config: TrainConfig) -> str:
    """A hash of everything that decides what training gives: resolved settings and the text. Reads the text."""
    content = [config.pos_name, flat(config, without=NOT_IDENTITY), _fingerprint(config.data.path)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def _fingerprint(path: str) -> str:
    """A text is read once for all jobs of a sweep."""
    return fingerprint(path)


def _plan_job(overrides: list[str], varied: list[str], folder: Path, config: DictConfig, loader: ConfigLoader) -> Job:
    impossible = False
    given = dict(override.split("=", 1) for override in overrides)
    label = [f"{key.rsplit('.', 1)[-1]}_{given[key]}" for key in varied]
    try:
        composed = loader.load_sweep_config(config, overrides)
        pos_name = scheme_name(composed.hydra)
        with open_dict(composed):
            del composed.hydra
        if composed.resume is not None:
            raise UserError(f"resume={composed.resume}: goes on with one run, without -m; a sweep finds its own")
        parsed = parse(composed, pos_name)
        name = "-".join([parsed.pos_name, *label, f"seed{parsed.settings.seed}"])
        return Job(overrides, folder / f"{_safe(name)}-{identity(parsed)[:8]}")
    except (HydraException, OmegaConfBaseException) as error:
        problem = explain(error, overrides)
    except UserError as error:
        problem, impossible = str(error), isinstance(error, SettingError) and error.option.startswith("pos.")
    name = "-".join([given.get("pos", ""), *label, f"seed{given.get('seed', '')}"])
    return Job(overrides, folder / _safe(name.strip("-")), problem, impossible)


def _varied(combinations: Sequence[Sequence[str]]) -> list[str]:
    """The options that differ between combinations, but for the two that every name tells."""
    values: dict[str, set[str]] = {}
    for overrides in combinations:
        for override in overrides:
            key, _, value = override.partition("=")
            values.setdefault(key, set()).add(value)
    return [key for key, found in values.items() if len(found) > 1 and key not in ("pos", "seed")]


def _safe(name: str) -> str:
    """A folder's name on every file system."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]
