"""The folder of a run: one process's alone, under a name that every file system takes."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from poslab.errors import SettingError
from poslab.runs.resume import CONFIG

RUNS = Path("runs")
CHECKPOINTS, SUMMARY = "checkpoints", "summary.json"
UNFINISHED = ".tmp"  # ends the name of a file that is being written

# Lightning starts a process of its own for each further device; all of them belong to one run.
_HANDED_DOWN = "POSLAB_RUN_FOLDER"
_LOCK = ".lock"


def is_first_process() -> bool:
    """Whether this is the process that the user has started, and not one that Lightning started for another device."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


@contextmanager
def new_run_folder(run_dir: str | None, pos_name: str, seed: int) -> Iterator[Path]:
    """A new folder, held by this process: `run_dir`, which must not exist or be empty, or one in runs/ that is called
    <scheme>-seed<seed>-<time>.

    Raises SettingError where it is in use or can't be written.
    """
    if not is_first_process() and _HANDED_DOWN in os.environ:
        yield Path(os.environ[_HANDED_DOWN])
        return
    with ExitStack() as held:
        try:
            folder = Path(os.path.expanduser(run_dir)) if run_dir else _new_name(pos_name, seed)
            folder.mkdir(parents=True, exist_ok=True)
            _check_empty(folder)  # before anything is put there
            held.enter_context(_holding(folder, "run_dir"))
            _check_empty(folder)
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
        except OSError as error:
            problem = f"can't be written: {error.strerror}; name another folder"
            raise SettingError("run_dir", run_dir or str(RUNS), problem) from error
        os.environ[_HANDED_DOWN] = str(folder)
        yield folder


@contextmanager
def old_run_folder(folder: Path) -> Iterator[Path]:
    """The folder of a run that goes on, held by this process. SettingError where another one is at it."""
    if not is_first_process() and _HANDED_DOWN in os.environ:
        yield folder
        return
    with ExitStack() as held:
        try:
            held.enter_context(_holding(folder, "resume"))
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
        except OSError as error:
            raise SettingError("resume", str(folder), f"can't be written: {error.strerror}") from error
        os.environ[_HANDED_DOWN] = str(folder)
        yield folder


def _check_empty(folder: Path) -> None:
    """A run that was killed before it could say what it is leaves nothing of worth."""
    nothing = (_LOCK, f"{CONFIG}{UNFINISHED}")
    content = [path for path in folder.iterdir() if path.name not in nothing]
    if any(path.name != CHECKPOINTS or not path.is_dir() or any(path.iterdir()) for path in content):
        raise SettingError("run_dir", str(folder), "is not empty; name a new folder, or an empty one")


@contextmanager
def _holding(folder: Path, option: str) -> Iterator[None]:
    """Keeps the lock; the system gives it back, too, when the process is killed. SettingError where it is taken."""
    lock, was_there = FileLock(folder / _LOCK, timeout=0), (folder / _LOCK).exists()
    try:
        lock.acquire()
    except Timeout:
        raise SettingError(option, str(folder), "another process is running it") from None
    refused = False
    try:
        yield
    except SettingError:
        refused = True
        raise
    finally:
        if (folder / SUMMARY).exists() or (refused and not was_there):  # nobody will want it any more
            (folder / _LOCK).unlink(missing_ok=True)
        lock.release()


def _new_name(pos_name: str, seed: int) -> Path:
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
            return folder
