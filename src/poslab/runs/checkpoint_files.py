"""Checkpoint files: they appear whole or not at all, the one before the last is kept, and reading them is verified."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO

from poslab.errors import RunStopped, SettingError

BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"
_UNFINISHED = ".tmp"


class CheckpointFiles(CheckpointIO):
    """How Lightning writes and reads checkpoints here: tensors and plain containers, nothing that could run code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Raises RunStopped where the file can't be written; what was there before is as it was."""
        path = Path(path)
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            with unfinished.open("wb") as opened:
                torch.save(checkpoint, opened)
                opened.flush()
                os.fsync(opened.fileno())
            if path.name == LAST and path.exists():
                os.replace(path, path.with_name(PREVIOUS))
            os.replace(unfinished, path)
            _sync(path.parent)
        except (OSError, RuntimeError) as error:
            unfinished.unlink(missing_ok=True)
            reason = _reason(error)
            if reason is None:
                raise
            kept = "the one before it is intact" if any(path.parent.glob("*.ckpt")) else "there is none before it"
            problem = f"{path}: can't be written: {reason}; {kept}. resume={path.parent.parent} goes on"
            raise RunStopped(problem) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Always without running code of the file's, whatever `weights_only` says."""
        content: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return content

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def newest_intact(folder: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """(file, its contents, a warning for each newer one that is damaged) of a run's `checkpoints` folder; None and
    nothing where no checkpoint was ever written. Raises SettingError if there are some but none is intact, or one
    holds what could run code."""
    damaged: list[str] = []
    for path in (folder / LAST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            return path, _verified(path), [f"{name} is damaged; going on from {path.name}" for name in damaged]
        except pickle.UnpicklingError as error:
            problem = "holds something else than tensors and plain values, so it isn't loaded: that could run any code"
            raise SettingError("resume", path, problem) from error
        except SettingError:
            raise
        except Exception:  # whatever half a file, or a changed one, makes of the reader
            damaged.append(str(path))
    if damaged:
        problem = "damaged, and no intact one is before it; without its checkpoints folder the run starts over"
        raise SettingError("resume", " and ".join(damaged), problem)
    return None, {}, []


def _verified(path: Path) -> dict[str, Any]:
    """Raises where the file is not, to the bit, what was written."""
    with zipfile.ZipFile(path) as archive:
        changed = archive.testzip()  # every part has a checksum
    if changed is not None:
        raise ValueError(f"{changed} has changed")
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if "progress" not in content:
        raise SettingError("resume", path, "says nothing of a run's progress: another program's, or an older version's")
    return content


def _reason(error: Exception) -> str | None:
    """Why a file can't be written; None for an error of another kind. torch tells of a full disk as its own."""
    known: BaseException | None = error
    while known is not None:
        if isinstance(known, OSError):
            return known.strerror or str(known)
        known = known.__cause__ or known.__context__
    return "the disk may be full" if "inline_container" in str(error) or "PytorchStreamWriter" in str(error) else None


def _sync(folder: Path) -> None:
    """The new names, too, reach the disk now; where a folder can be opened for it."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
