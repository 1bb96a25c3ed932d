"""A whole sweep: plan, run what is left, say how far it is, and end with a table of all jobs."""

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from poslab.errors import SettingError, UserError
from poslab.interruption import Interrupted, raise_on_signals
from poslab.runs.folder import RunFolder
from poslab.runs.summary import Summary
from poslab.runs.wording import clock
from poslab.sweep.plan import Job, plan, sweep_folder
from poslab.sweep.status import Status, StatusFile, now
from poslab.sweep.threads import divide_threads


def run_sweep(
    combinations: Sequence[Sequence[str]], config: DictConfig, loader: ConfigLoader, launcher: Launcher
) -> bool:
    """Runs every combination that isn't finished; whether all are now. Raises UserError if none can run at all."""
    jobs = plan(combinations, config, loader)
    if all(job.problem for job in jobs):
        raise UserError(str(jobs[0].problem))
    folder = sweep_folder(config)
    left = [job for job in jobs if not job.problem and not job.finished]
    if left:
        _check_writable(folder)
    name = config.hydra.runtime.choices.get("experiment") or "sweep"
    print(f"{name}: {len(jobs)} jobs, {len(left)} to run; runs in {folder}", flush=True)
    progress = Progress(jobs, left)
    interruption: BaseException | None = None
    if left:
        progress.start()
        raise_on_signals(within=None)  # the jobs at work save what they have first
        try:
            threads = divide_threads(config, len(left))
            results = launcher.launch([_overrides(job, threads) for job in left], initial_job_idx=0)
            _note_crashes(left, results)
        except (KeyboardInterrupt, Interrupted) as error:
            interruption = error
        finally:
            progress.stop()
        _remove_if_empty(Path(str(config.hydra.sweep.dir)))
    complete = _conclude(jobs, progress, folder)
    if interruption is not None:
        print("the same command goes on from here")
        raise interruption
    return complete


class Progress:
    """One line: how many jobs are done, running and left, and about how long they will take. Where there is no
    terminal to rewrite it in, a new line whenever a job is done."""

    def __init__(self, jobs: list[Job], left: list[Job]) -> None:
        self.total = len(jobs)
        self.left = left
        self.begun = now()
        self._done = -1
        self._last_end = time.time()  # when the last job was done
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def status(self, job: Job) -> Status | None:
        """What the job has said of itself during this sweep."""
        return StatusFile(job.folder).read(self.begun)

    def line(self) -> str:
        statuses = [self.status(job) for job in self.left]
        states = Counter(status.state for status in statuses if status)
        done = self.total - len(self.left) + states["finished"] + states["failed"]
        if done != self._done:
            self._done, self._last_end = done, time.time()
        waiting = self.total - done - states["running"]
        text = f"{done} of {self.total} jobs done, {states['running']} running, {waiting} left"
        ended = len(self.left) - (self.total - done)  # during this sweep
        if ended and done < self.total:
            whole = (self._last_end - self.begun) / ended * (self.total - done)
            text += f", about {clock(max(0, whole - (time.time() - self._last_end)))} to go"
        return text

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._show()
        self._show(last=True)

    def _show(self, last: bool = False) -> None:
        before, line = self._done, self.line()
        if sys.stdout.isatty():
            print(f"\r\033[K{line}", end="\n" if last else "", flush=True)
        elif before != self._done:
            print(line, flush=True)


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingError("run_dir", folder, f"can't be written: {error.strerror}; name another folder") from error


def _note_crashes(jobs: list[Job], results: Sequence[JobReturn]) -> None:
    """What stopped a job before it could say so itself."""
    for job, result in zip(jobs, results, strict=True):
        try:
            _ = result.return_value
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            StatusFile(job.folder).write(Status("failed", reason=reason))


def _overrides(job: Job, threads: int | None) -> list[str]:
    own = [override for override in job.overrides if not override.startswith(("run_dir=", "threads="))]
    quoted = str(job.folder).replace("\\", "\\\\").replace("'", "\\'")
    given = [override for override in job.overrides if override.startswith("threads=")]
    return [*own, f"run_dir='{quoted}'", *(given or ([f"threads={threads}"] if threads else []))]


def _conclude(jobs: list[Job], progress: Progress, folder: Path) -> bool:
    """The table of all jobs; whether every one that can run is finished."""
    width = max(len(job.folder.name) for job in jobs)
    print(f"\n{'job':<{width}}  {'best val loss':>13}  {'time':>7}")
    unfinished = 0
    for job in jobs:
        status, log = progress.status(job), StatusFile(job.folder).log
        loss, seconds, note = "", "", ""
        if job.finished:
            note = "" if status else "was finished before"
            try:
                summary = Summary.read(RunFolder(job.folder).summary)
                loss, seconds = _number(summary.best_val_loss), clock(summary.wall_time_s)
            except ValueError as error:
                loss, note = "n/a", str(error)
        elif job.impossible:
            loss, note = "left out", str(job.problem)
        else:
            unfinished += 1
            loss = "failed" if job.problem or (status and status.state == "failed") else "unfinished"
            note = job.problem or (status.reason if status else "")
            if not note and StatusFile(job.folder).claimed:
                note = "another process is running it"
            note += f" (log: {log})" if not job.problem and status and log.exists() else ""
        print(f"{job.folder.name:<{width}}  {loss:>13}  {seconds:>7}  {note}".rstrip())
    print(f"\nruns     {folder}\ncompare  python scripts/compare.py runs={folder}")
    return not unfinished


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"


def _remove_if_empty(folder: Path) -> None:
    for path in (folder, folder.parent):
        try:
            path.rmdir()
        except OSError:
            return
