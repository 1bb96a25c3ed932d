"""The folder of a run: one run's alone, under a name that every file system takes."""

import os
import re
import time
from pathlib import Path

from poslab.errors import SettingError

RUNS = Path("runs")

# Lightning starts a process of its own for each further device; all of them belong to one run.
_HANDED_DOWN = "POSLAB_RUN_FOLDER"


def claim_run_folder(run_dir: str | None, pos_name: str, seed: int) -> Path:
    """A new folder: `run_dir`, which must not exist or be empty, or runs/<scheme>-seed<seed>-<time>.

    Raises SettingError where it is in use or can't be written.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0" and _HANDED_DOWN in os.environ:
        return Path(os.environ[_HANDED_DOWN])
    try:
        folder = _claim(Path(run_dir).expanduser()) if run_dir else _claim_new(pos_name, seed)
    except OSError as error:
        raise SettingError("run_dir", run_dir or str(RUNS), f"can't be written: {error.strerror}") from error
    os.environ[_HANDED_DOWN] = str(folder)
    return folder


def _claim(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SettingError("run_dir", str(folder), "is not empty; name a new folder, or an empty one")
    (folder / "checkpoints").mkdir()  # fails now, not after training, where nothing may be written
    return folder


def _claim_new(pos_name: str, seed: int) -> Path:
    safe_name = re.sub(r"[^A-Za-z0-9_.-]", "_", pos_name)
    name = f"{safe_name}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    RUNS.mkdir(exist_ok=True)
    number = 1
    while True:  # two runs may start within one second
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return _claim(folder)
