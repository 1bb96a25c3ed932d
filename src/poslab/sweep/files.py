"""Files of a sweep's jobs, beside the run folders: what a job said, and whether a process is at it."""

from pathlib import Path

from filelock import FileLock, Timeout

from poslab.runs.folder import SWEEP, failure_in


class JobFiles:
    """<sweep>/.sweep/<job>.log and its lock. Jobs may run on any machine, so all that is known of one stands there."""

    def __init__(self, run_folder: Path) -> None:
        self.log = run_folder.parent / SWEEP / f"{run_folder.name}.log"

    @property
    def failure(self) -> str:
        """Why the job failed; empty if it didn't, or has not ended."""
        return failure_in(self.log)

    def add_failure(self, reason: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as opened:
            opened.write(f"error: {reason}\n")

    def claim(self) -> FileLock:
        """A lock to hold while the job runs; `with` raises filelock.Timeout where another process holds it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.log.with_suffix(".lock"), timeout=0)

    @property
    def claimed(self) -> bool:
        """Whether a process is running the job right now."""
        try:
            with self.claim():
                return False
        except Timeout:
            return True
