"""States of a sweep's jobs while they run: small files beside the run folders, as jobs may run on any machine."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from poslab.runs.folder import SWEEP
from poslab.settings.files import write_whole


@dataclass(frozen=True)
class Status:
    """state: running, finished or failed. reason: why it failed, or what was done of a job that was finished before."""

    state: str
    seconds: float = 0.0
    reason: str = ""


class StatusFile:
    """<sweep>/.sweep/<job>.json, with the job's log and lock beside it."""

    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder.parent / SWEEP / f"{run_folder.name}.json"
        self.log = self.path.with_suffix(".log")

    def write(self, status: Status) -> None:
        write_whole(self.path, json.dumps(asdict(status)) + "\n")

    def read(self) -> Status | None:
        """The job's state; None where nothing is known of it."""
        try:
            return Status(**json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def forget(self) -> None:
        """Removes the state that an earlier sweep has left; its log stays."""
        self.path.unlink(missing_ok=True)

    def claim(self) -> FileLock:
        """A lock to hold while the job runs; `with` raises filelock.Timeout where another process holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_suffix(".lock"), timeout=0)

    @property
    def claimed(self) -> bool:
        """Whether a process is running the job right now."""
        try:
            with self.claim():
                return False
        except Timeout:
            return True
