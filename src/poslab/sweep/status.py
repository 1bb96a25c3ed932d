"""What is known of a sweep's jobs while they run, in small files beside the run folders: jobs may run anywhere."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from poslab.runs.folder import SWEEP
from poslab.settings.files import write_whole


@dataclass(frozen=True)
class Status:
    """state: running, finished or failed."""

    state: str
    seconds: float = 0.0
    reason: str = ""


class StatusFile:
    """<sweep>/.sweep/<job>.json, and beside it the job's log and lock."""

    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder.parent / SWEEP / f"{run_folder.name}.json"
        self.log = self.path.with_suffix(".log")

    def write(self, status: Status) -> None:
        write_whole(self.path, json.dumps(asdict(status)) + "\n")

    def read(self, since: float) -> Status | None:
        """None where nothing has been said since that time."""
        try:
            if self.path.stat().st_mtime < since:
                return None
            return Status(**json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def claim(self) -> FileLock:
        """To be held while the job runs; `with` raises filelock.Timeout where another process holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_suffix(".lock"), timeout=0)

    @property
    def claimed(self) -> bool:
        """Whether some process is running the job right now."""
        try:
            with self.claim():
                return False
        except Timeout:
            return True


def now() -> float:
    """The time by which files are dated; a little early, as some file systems keep whole seconds only."""
    return time.time() - 2
