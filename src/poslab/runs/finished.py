"""Run folders, read back: those that are finished and whole, and of all others why they are left out."""

import json
import os
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from poslab.errors import SettingError

# What a comparison reads; a summary without them is no run's, or another version's.
_NUMBERS = ("best_val_loss", "last_val_loss", "steps", "tokens_per_s", "wall_time_s", "params_total", "params_scheme")
_INFINITE = 1e100  # losses from here on; sums of their squares would be
_COUNTS = ("seed", "context_length")
_TEXTS = ("pos", "data", "data_sha256")
_GROUPS = ("pos_settings", "versions")
_NEEDED = (*_NUMBERS, *_COUNTS, *_TEXTS, *_GROUPS)


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, summary.json, and config.yaml or, if that is missing, what the summary says of it."""

    folder: Path
    summary: dict[str, Any]
    config: dict[str, Any]
    has_config: bool = True

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def pos(self) -> str:
        return str(self.summary["pos"])

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def loss(self) -> float:
        """The best validation loss, nats per token."""
        return float(self.summary["best_val_loss"])


@dataclass(frozen=True)
class LeftOut:
    """A folder that is not compared, and why."""

    folder: Path
    reason: str


def read_runs(paths: Iterable[str]) -> tuple[list[Run], list[LeftOut]]:
    """All runs in the folders and below, in order of their names. Raises SettingError for a path that is no folder."""
    folders: dict[Path, None] = {}
    left_out: list[LeftOut] = []
    for path in paths:
        root = Path(os.path.expanduser(path))
        if not path or not root.is_dir():
            raise SettingError("runs", path, "no such folder; name run folders, or a folder that holds some")
        found = _run_folders(root)
        folders |= dict.fromkeys(found)
        left_out += _foreign(root, found) + _failed_jobs(root)
    runs = []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except ValueError as error:
            left_out.append(LeftOut(folder, str(error)))
    return runs, left_out


def _run_folders(root: Path, above: frozenset[Path] = frozenset()) -> list[Path]:
    """Those with a trace of a run, and those that can't be searched. `above`: the folders around it, resolved, as links
    may lead in a circle."""
    here = root.resolve()
    if here in above:
        return []
    try:
        own = [root] if any((root / name).exists() for name in ("summary.json", "config.yaml", "checkpoints")) else []
        children = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return [root]
    return own + [folder for child in children for folder in _run_folders(child, above | {here})]


def _foreign(root: Path, found: list[Path]) -> list[LeftOut]:
    """Folders directly in `root` that hold no run."""
    if root in found:
        return []
    children = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    empty = [child for child in children if not any(folder.is_relative_to(child) for folder in found)]
    return [LeftOut(child, "no run in it") for child in empty if not (child / "report.html").exists()]


def _failed_jobs(root: Path) -> list[LeftOut]:
    """Jobs of a sweep that failed before they had a folder."""
    left_out = []
    for path in sorted(root.rglob(".sweep/*.json")):
        folder = path.parent.parent / path.stem
        try:
            status = json.loads(path.read_text(encoding="utf-8"))
            if status["state"] == "failed" and not folder.exists():
                left_out.append(LeftOut(folder, f"failed: {status['reason']}"))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of no run, and no result either
    return left_out


def _read(folder: Path) -> Run:
    """Raises ValueError with the reason why the folder is no finished run."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError("unfinished: it has no summary.json") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"summary.json can't be read: {error}") from error
    if not isinstance(summary, dict):
        raise ValueError("summary.json is not a run's")
    missing = [key for key in _NEEDED if key not in summary]
    if missing:
        raise ValueError(f"summary.json says nothing of {', '.join(missing)}: not a run's, or another version's")
    for key in _NEEDED:
        problem = _problem(key, summary[key])
        if problem:
            raise ValueError(f"summary.json has {key}={reprlib.repr(summary[key])}, which is {problem}")
    if summary["best_val_loss"] is None or not abs(summary["best_val_loss"]) < _INFINITE:
        raise ValueError("its validation loss was never a finite number")
    file = folder / "config.yaml"
    if not file.exists():
        return Run(folder, summary, _config_of(summary), has_config=False)
    return Run(folder, summary, _read_config(file))


def _problem(key: str, value: Any) -> str:
    """What is wrong with a value of the summary; empty if nothing is."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if key in _COUNTS:
        return "" if whole else "no whole number"
    if key in _TEXTS:
        return "" if isinstance(value, str) and value.strip() and value.isprintable() else "no name"
    if key in _GROUPS:
        return "" if isinstance(value, dict) else "no group of values"
    unknown = value is None and key in ("best_val_loss", "last_val_loss")
    return "" if whole or isinstance(value, float) or unknown else "no number"


def _config_of(summary: dict[str, Any]) -> dict[str, Any]:
    """As much of a run's configuration as its summary knows."""
    pos = {"_target_": summary.get("pos_target"), **summary["pos_settings"]}
    data = {"path": summary["data"], "vocabulary": summary.get("vocabulary", "full")}
    return {"pos": pos, "model": {"context_length": summary["context_length"]}, "data": data}


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"config.yaml can't be read: {str(error).splitlines()[0]}") from error
    groups = [config.get(name) if isinstance(config, dict) else None for name in ("pos", "model", "data")]
    if not (isinstance(config, dict) and all(isinstance(group, dict) for group in groups)):
        raise ValueError("config.yaml is not a run's")
    target = config["pos"].get("_target_")
    if not (isinstance(target, str) and all(part.isidentifier() for part in target.split("."))):
        raise ValueError(f"config.yaml has pos._target_={reprlib.repr(target)}, which is no class")
    return {str(key): value for key, value in config.items()}
