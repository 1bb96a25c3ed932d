"""Folder of a run: the names of everything in it, and the lock of the process that writes there."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from poslab.config.files import UNFINISHED, safe_name
from poslab.errors import SettingError
from poslab.processes import rank

RUNS = Path("runs")
EVALUATION = "evaluation.json"
ANSWERS = "answers.json"
SWEEP = ".sweep"  # beside the runs of a sweep: their logs
SEEDS_ALIKE = "([^/]+)-seed"  # regex of what the names of runs that differ in the seed have in common
COLOURS = f"in TensorBoard, Color runs by, Regex: {SEEDS_ALIKE}"


class RunFolder:
    """Names of everything in the folder of a run."""

    names = frozenset({"summary.json", "config.yaml", "checkpoints"})  # of which a run leaves a trace

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"  # all settings, resolved
        self.summary = path / "summary.json"  # the figures of a finished run
        self.diverged = path / "diverged.json"  # a summary, of a run whose loss became infinite, or no number
        self.answers = path / ANSWERS  # of a task: what the best weights got wrong of the first tests
        self.evaluation = path / EVALUATION  # losses of the best weights by length and position, on the run's own text
        self.checkpoints = path / "checkpoints"
        self.best = self.checkpoints / "best.safetensors"  # the weights of the lowest validation loss
        self.last = self.checkpoints / "last.ckpt"  # everything that the run needs to go on
        self.previous = self.checkpoints / "previous.ckpt"  # the one before, for the case that `last` is damaged
        self._lock = path / ".lock"

    def __str__(self) -> str:
        return str(self.path)

    @property
    def events(self) -> list[Path]:
        """TensorBoard's files."""
        return sorted(self.path.glob("events.out.tfevents.*"))

    @property
    def csv_files(self) -> dict[str, Path]:
        """Files of Lightning's CSVLogger, by their paths in this folder."""
        return {str(path.relative_to(self.path)): path for path in sorted(self.path.glob("*/version_*/metrics.csv"))}

    @property
    def finished(self) -> bool:
        return self.summary.exists()

    @property
    def has_checkpoint(self) -> bool:
        """True if there is a checkpoint from which the run can go on."""
        return self.last.exists() or self.previous.exists()

    @property
    def is_run(self) -> bool:
        """True if there is a trace of a run."""
        return any((self.path / name).exists() for name in self.names)

    @property
    def is_running(self) -> bool:
        """True if a process holds the lock."""
        if not self._lock.exists():
            return False
        try:
            with FileLock(self._lock, timeout=0):
                return False
        except Timeout:
            return True

    def held(self, option: str) -> ExitStack:
        """Take the lock, which the system releases when the process is killed. Raises SettingError if it is taken."""
        held, lock = ExitStack(), FileLock(self._lock, timeout=0)
        try:
            held.enter_context(lock)
        except Timeout:
            raise SettingError(option, str(self), "another process is running it") from None
        held.callback(lambda: self._lock.unlink(missing_ok=True) if self.finished else None)  # nobody will want it
        return held


def run_at(path: str | Path, idle: bool = False) -> Path:
    """Return the path; for `last`, where there is none of that name, the newest run in `runs`, if any. idle: of those
    that no process is running."""
    named = Path(os.path.expanduser(path))
    if str(path) != "last" or named.exists():
        return named
    begun = (checkpoints for checkpoints in RUNS.rglob("checkpoints") if any(checkpoints.iterdir()))
    newest_first = sorted(begun, key=lambda checkpoints: checkpoints.stat().st_mtime, reverse=True)
    for run in (RunFolder(checkpoints.parent) for checkpoints in newest_first):
        if not (idle and run.is_running):
            print(f"note: the last run is {run}", file=sys.stderr)
            return run.path
    return named


_MUCH = 100e6  # bytes


def disk_words(runs: Iterable[RunFolder]) -> str:
    """Say how much disk runs take and how to free what only a longer training needs; empty where that is little."""
    runs = list(runs)
    last = sum(run.last.stat().st_size for run in runs if run.last.exists())
    if last < _MUCH:
        return ""
    whole = sum(file.stat().st_size for run in runs for file in run.path.rglob("*") if file.is_file())
    kept = f"{whole / 1e6:,.0f} MB, of which {last / 1e6:,.0f} MB (checkpoints/last.ckpt) serve only to train longer"
    return f"{kept}; keep_last=false doesn't keep them"


def failure_in(log: Path) -> str:
    """Return why a sweep's job failed, from the last line of its log; empty if it didn't, or there is no log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1].removeprefix("error: ") if lines and lines[-1].startswith("error: ") else ""


@contextmanager
def new_run_folder(run_dir: str | None, pos_name: str, seed: int) -> Iterator[RunFolder]:
    """Yield a new folder, locked: `run_dir`, which must not exist or be empty, or runs/<scheme>-seed<seed>-<time>.

    Rank zero makes it; other processes write nothing, and learn its name from Lightning, if at all. Raises SettingError
    if it is in use or can't be written.
    """
    if rank():
        yield RunFolder(RUNS)
        return
    try:
        run = RunFolder(Path(os.path.expanduser(run_dir)) if run_dir else _new_name(pos_name, seed))
        run.path.mkdir(parents=True, exist_ok=True)
        # A run that was killed at its start leaves these, so they don't count.
        content = {path for path in run.path.iterdir() if path.suffix != UNFINISHED} - {run._lock}
        if any(path != run.checkpoints or not path.is_dir() or any(path.iterdir()) for path in content):
            goes_on = f"; resume={run} goes on with its run" if run.config.exists() and not run.finished else ""
            raise SettingError("run_dir", str(run), f"is not empty; name a new folder, or an empty one{goes_on}")
        lock = run.held("run_dir")
        run.checkpoints.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"can't be written: {error.strerror}; name another folder"
        raise SettingError("run_dir", run_dir or str(RUNS), problem) from error
    with lock:
        yield run


def _new_name(pos_name: str, seed: int) -> Path:
    name = f"{safe_name(pos_name)}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    RUNS.mkdir(exist_ok=True)
    folder, number = RUNS / name, 1
    while True:
        try:
            folder.mkdir()
            return folder
        except FileExistsError:  # because two runs may start within one second
            number += 1
            folder = RUNS / f"{name}-{number}"
