"""Run folders read back: finished runs, and the reason why any other is left out."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poslab.config.files import missing
from poslab.config.nodes import shown, targets, training_of_scheme
from poslab.errors import SettingError
from poslab.runs.folder import SWEEP, RunFolder, failure_in
from poslab.runs.readers import read_config
from poslab.runs.summary import Summary

_INFINITE = 1e100  # losses from here on; sums of their squares would be


@dataclass(frozen=True)
class Run:
    """Finished run: its folder, its summary, and its configuration."""

    folder: Path
    summary: Summary
    config: dict[str, Any]

    @property
    def diverged(self) -> bool:
        return bool(self.divergence)

    @property
    def divergence(self) -> str:
        """Return when a run diverged whose loss became infinite, or no number, in words; empty for any other."""
        losses = (self.summary.best_val_loss, self.summary.last_val_loss)
        if all(loss is not None and abs(loss) < _INFINITE for loss in losses):
            return ""
        never = losses[0] is None or not abs(losses[0]) < _INFINITE
        first = "its validation loss was never a finite number: " if never else ""
        return f"{first}it diverged, by step {self.summary.steps}"

    @property
    def text_path(self) -> str | None:
        """Return where the text was; None for a run on fresh examples of a task."""
        path = self.config["data"].get("path")
        return None if path is None else str(path)

    @property
    def seed(self) -> int:
        return self.summary.seed

    @property
    def classes(self) -> str:
        """Return the class of its scheme, and of the schemes among its settings."""
        return " with ".join(map(str, targets(self.config["pos"])))

    @property
    def best_loss(self) -> float:
        """Return the best validation loss, nats per token: of the weights that are kept."""
        return float(self.summary.best_val_loss or 0.0)

    @property
    def scheme_settings(self) -> dict[str, Any]:
        """Return the settings of the scheme, and of how it is trained, as one would type them."""
        return shown(self.summary.pos_settings) | training_of_scheme(self.config)

    @property
    def metrics(self) -> list[str]:
        """Return the names of all that `value` knows, first the one by which such runs are compared."""
        figures = [name for name in self.summary.metrics if not name.endswith("_chance")]
        return list(dict.fromkeys([measure.name for measure in self.summary.measures] + figures))

    def lengths(self, metric: str) -> list[int]:
        """Return the lengths at which a metric is known, in order; none for a metric of the whole run."""
        return sorted(map(int, self.summary.metrics.get(metric, {})))

    def value(self, metric: str, length: int) -> float | None:
        """Return the run's figure of a metric at a length; None if it has none."""
        return self.summary.metrics.get(metric, {}).get(str(length))


@dataclass(frozen=True)
class LeftOut:
    """Folder that is not compared, and why."""

    folder: Path
    reason: str


def read_runs(paths: Iterable[str]) -> tuple[list[Run], list[LeftOut]]:
    """Return all runs in the folders and below, finished or diverged, ordered by name, and the folders left out. Raises
    SettingError for a path that is no folder."""
    folders: dict[Path, None] = {}
    left_out: list[LeftOut] = []
    for path in paths:
        root = Path(os.path.expanduser(path))
        if not path or not root.is_dir():
            problem = "no such folder; name run folders, or a folder that holds some"
            raise SettingError("runs", path, missing(path, problem))
        tree = _walk(root)
        folders |= dict.fromkeys(tree.runs)
        left_out += tree.unreadable
        if root not in tree.runs:
            with_runs = {folder.relative_to(root).parts[0] for folder in tree.runs}
            unreadable = {left.folder for left in tree.unreadable}
            for child in tree.children:
                if child.name not in with_runs and child not in {*tree.reports, *unreadable}:
                    left_out.append(LeftOut(child, "no run in it"))
        for log in (log for sweep in tree.sweeps for log in sorted((sweep / SWEEP).glob("*.log"))):
            folder, why = log.parents[1] / log.stem, failure_in(log)
            if why and not folder.exists():  # because what has a folder is read below
                left_out.append(LeftOut(folder, f"failed: {why}"))
    runs = []
    for folder in folders:
        try:
            runs.append(_read_outcome(folder))
        except ValueError as error:
            left_out.append(LeftOut(folder, str(error)))
    return runs, left_out


@dataclass
class _Tree:
    """What a folder and those below it hold. children: the folders directly in it. reports, sweeps: folders with a
    report, and with logs of a sweep."""

    runs: list[Path] = field(default_factory=list)
    children: list[Path] = field(default_factory=list)
    reports: list[Path] = field(default_factory=list)
    sweeps: list[Path] = field(default_factory=list)
    unreadable: list[LeftOut] = field(default_factory=list)


def _walk(root: Path) -> _Tree:
    """Return what is found at any depth, each folder once: links are followed last, and may lead back."""
    tree, seen = _Tree(), set[tuple[int, int]]()
    folders, links = [root], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        try:
            with os.scandir(folder) as opened:
                entries = sorted(opened, key=lambda entry: entry.name)
                identity = os.stat(folder)
        except OSError as error:
            tree.unreadable.append(LeftOut(folder, f"can't be read: {error.strerror}"))
            continue
        if (identity.st_dev, identity.st_ino) in seen:
            continue
        seen.add((identity.st_dev, identity.st_ino))
        names = {entry.name for entry in entries}
        for name, folders_with_it in ((SWEEP, tree.sweeps), ("report.html", tree.reports)):
            if name in names:
                folders_with_it.append(folder)
        if RunFolder.names & names:
            tree.runs.append(folder)
        for entry in entries:
            if folder == root and entry.is_symlink() and not os.path.exists(entry):  # a run may have stood there
                tree.unreadable.append(LeftOut(folder / entry.name, "is a link to nothing"))
            if not entry.name.startswith(".") and entry.is_dir():
                (links if entry.is_symlink() else folders).append(folder / entry.name)
                if folder == root:
                    tree.children.append(folder / entry.name)
    tree.runs.sort()
    return tree


def _read_outcome(folder: Path) -> Run:
    files = RunFolder(folder)
    if os.path.exists(files.diverged) and not os.path.exists(files.summary):
        return Run(folder, Summary.read(files.diverged), _config(files.config))
    run = read_run(folder)
    if run.summary.best_val_loss is None and run.summary.last_val_step is None:
        raise ValueError("its validation loss was never a finite number, or it was never validated")
    return run


def read_run(folder: Path) -> Run:
    """Return the run in a folder. Raises ValueError with the reason why it is no finished run."""
    run = RunFolder(folder)
    return Run(folder, Summary.read(run.summary), _config(run.config))


def _config(file: Path) -> dict[str, Any]:
    """Return a run's configuration, with what runs before a setting did where they don't have it."""
    config = read_config(file)
    if "order" in config["data"]:  # of a text
        config["data"].setdefault("documents", "joined")
    return config
