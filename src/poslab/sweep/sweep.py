"""Sweep: plan the jobs, run those that are left, show the progress, and end with a table of all jobs."""

import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from hydra.core.config_loader import ConfigLoader
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from poslab.config.command_line import command_line
from poslab.config.files import require_writable
from poslab.config.overrides import quoted_text, unquoted
from poslab.config.trust import needs_allow_code
from poslab.errors import UserError
from poslab.processes import launched
from poslab.processors import available
from poslab.progress import Interval
from poslab.runs.folder import COLOURS, RunFolder, disk_words
from poslab.runs.plan import add_to_plan
from poslab.runs.summary import Summary
from poslab.signals import Interrupted, raise_on_signals
from poslab.sweep.job import JobFiles
from poslab.sweep.job_list import Job, list_jobs, planned_groups, sweep_folder
from seedstats.page.terminal import clock, table

LOOK = 0.5  # seconds between two looks at the jobs


def run_sweep(
    combinations: Sequence[Sequence[str]], config: DictConfig, loader: ConfigLoader, launcher: Launcher
) -> bool:
    """Run every combination that isn't finished, and return whether all are now. Raises UserError if none can run."""
    if launched("auto").get("devices", 1) > 1:
        problem = "torchrun or srun has started several processes, of which each would run the sweep"
        raise UserError(f"-m: {problem}; hydra/launcher=... starts jobs, trainer.devices=... processes of each")
    jobs = list_jobs(combinations, config, loader)
    if all(job.problem for job in jobs):
        raise UserError(jobs[0].problem)
    folder = sweep_folder(config, config.hydra)
    left = [job for job in jobs if not job.problem and not job.finished]
    if left:
        require_writable("run_dir", folder)
    for files in (JobFiles(job.folder) for job in left):
        if files.log.exists() and not files.claimed:
            files.log.unlink()
    to_train = sum(not job.trained for job in left)
    to_evaluate = f", {len(left) - to_train} to evaluate" if len(left) > to_train else ""
    name = config.hydra.runtime.choices.get("experiment") or "sweep"
    counted = f"{len(jobs)} job{'s' * (len(jobs) != 1)}, {to_train} to run{to_evaluate}"
    print(f"{name}: {counted}; runs in {folder}", flush=True)
    print(*_left_out(jobs), sep="", end="", flush=True)
    add_to_plan(folder, planned_groups(jobs))
    try:
        if left:
            raise_on_signals(within=None)  # the jobs at work save what they have first
            with Progress(sum(not job.problem for job in jobs), left):
                threads = _divide_threads(config, len(left))
                results = launcher.launch([_overrides(job, threads) for job in left], initial_job_idx=0)
                for job, result in zip(left, results, strict=True):
                    try:
                        _ = result.return_value
                    except Exception as error:  # it stopped the job before that could log it
                        reason = " ".join(str(error).split()) or type(error).__name__
                        JobFiles(job.folder).add_failure(reason)
    except (KeyboardInterrupt, Interrupted):
        _conclude(jobs, folder)
        print("the same command goes on from here")
        raise
    return _conclude(jobs, folder)


class Progress:
    """Progress line, within a context: how many of the jobs that can run are done and running, and about how long all
    others will take, by the median time of those that are finished and how many run at a time. Without a terminal to
    rewrite it in, a new line whenever a job is done, and each minute."""

    def __init__(self, total: int, left: list[Job]) -> None:
        self.total = total
        self.left = left
        self._begun: dict[Path, float] = {}  # when each job was first seen to run
        self._over: set[Path] = set()  # folders of the jobs that ended: whether one has takes long to find out
        self._times: list[float] = []  # of the jobs that finished
        self._at_a_time = 1
        self._shown, self._minute = "", Interval(60)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK):
            self._show()
        self._show(last=True)

    def _show(self, last: bool = False) -> None:
        now = time.monotonic()
        for job in self.left:
            if job.folder in self._over or not JobFiles(job.folder).log.exists():
                continue
            begun = self._begun.setdefault(job.folder, now)
            if job.finished:
                self._times.append(now - begun)
            if job.finished or JobFiles(job.folder).failure:
                self._over.add(job.folder)
        running = [now - begun for folder, begun in self._begun.items() if folder not in self._over]
        self._at_a_time = max(self._at_a_time, len(running))  # fewer run for a moment, between two jobs
        to_do = len(self.left) - len(self._over)
        done = f"{self.total - to_do} of {self.total} jobs done"
        line = f"{done}, {len(running)} running" if running else done
        if self._times and to_do:
            at_a_time = min(self._at_a_time, to_do)
            line += f", about {clock(seconds_to_go(self._times, running, to_do - len(running), at_a_time))} to go"
        if sys.stdout.isatty():
            print(f"\r\033[K{line}", end="\n" if last else "", flush=True)
        elif done != self._shown or self._minute.is_over():
            print(line, flush=True)
            self._shown = done
            self._minute.begin()


def seconds_to_go(finished: Sequence[float], running: Sequence[float], waiting: int, at_a_time: int) -> float:
    """Estimate how long the jobs will take that are running or waiting.

    finished, running: seconds that each job took, or has taken so far. waiting: number of jobs.
    """
    typical = median(finished)
    work = typical * waiting + sum(max(0.0, typical - seconds) for seconds in running)
    return work / at_a_time


def _left_out(jobs: list[Job]) -> list[str]:
    """Return a line for each reason why combinations can't run."""
    reasons = Counter(job.reason.partition("; valid: ")[0] for job in jobs if job.problem)
    return [f"{count} of {len(jobs)} combinations left out: {reason}\n" for reason, count in reasons.items()]


def _overrides(job: Job, threads: int | None) -> list[str]:
    """Return the command line of the job alone."""
    settings = [override for override in job.overrides if not override.startswith(("run_dir=", "threads="))]
    threads_given = [override for override in job.overrides if override.startswith("threads=")]
    return [
        *settings,
        f"run_dir={quoted_text(str(job.folder))}",
        *(threads_given or ([f"threads={threads}"] if threads else [])),
    ]


def _conclude(jobs: list[Job], folder: Path) -> bool:
    """Print the table of the jobs that can run and why others can't. Return whether all that was asked for is trained:
    every job but the impossible ones, and every value of a setting in a job at least."""
    possible = [job for job in jobs if not job.problem]
    rows = [[job.folder.name, *_result(job)] for job in possible]
    held_out = any(job.config and getattr(job.config.data, "test_share", 0) for job in jobs)
    loss_heading = "test loss" if held_out else "last val loss"
    heading = "tested" if any(" at " in result for _, result, *_ in rows) else loss_heading
    print(f"\n{table(['job', heading, 'time', ''], rows, align='<>><')}\n")
    if any(job.other_code for job in jobs):
        print("note: other code of poslab trained some of these; without their folders, or in another run_dir=..., "
              "they are trained anew\n")  # fmt: skip
    if left_out := _left_out(jobs):
        print(*left_out, sep="")
    asked, met = ({value for job in some for value in job.overrides} for some in (jobs, possible))
    if never := sorted(map(unquoted, asked - met)):
        print(f"trained by no job: {', '.join(never)}\n")
    if disk := disk_words([RunFolder(job.folder) for job in possible]):
        print(f"disk     {disk}")
    print(f"runs     {folder}\ncurves   {shlex.join(['tensorboard', '--logdir', str(folder)])}\ncolours  {COLOURS}")
    own_code = any(job.config is not None and needs_allow_code(job.config.plain) for job in possible)
    allowed = ["allow_code=true"] if own_code else []
    print(f"compare  {command_line('compare', f'runs={folder}', *allowed)}")
    if possible:
        explained = folder if len(possible) == 2 else possible[0].folder  # two stand side by side
        print(f"explain  {command_line('explain', str(explained), *allowed)}")
    succeeded = [job.impossible or (job.finished and not JobFiles(job.folder).failure) for job in jobs]
    return not never and all(succeeded)


def _result(job: Job) -> tuple[str, str, str]:
    notes = [f"was finished before{', by other code' if job.other_code else ''}"] if job.reused else []
    if not job.finished:
        files = JobFiles(job.folder)
        begun = "interrupted" if RunFolder(job.folder).is_run or files.log.exists() else "not started"
        reason = files.failure or ("another process is running it" if files.claimed else begun)
        reason += f" (log: {files.log})" if files.log.exists() else ""
        if not job.trained:
            return "failed" if files.failure else "unfinished", "", reason
        notes.append(f"not evaluated at {', '.join(map(str, job.unmeasured))}: {reason}")
    elif failure := JobFiles(job.folder).failure:  # of a run that is finished, such as a target that was missed
        notes.append(failure)
    note = "; ".join(notes)
    try:
        summary = Summary.read(RunFolder(job.folder).summary)
    except ValueError as error:
        return "n/a", "", f"{error}; {note}"
    name = summary.measures[0].name  # by which such runs are compared
    figures = "n/a" if summary.loss is None else f"{summary.loss:.4f}"
    if name in summary.metrics:
        figures = f"{name} " + ", ".join(f"{share:.3f} at {n}" for n, share in summary.metrics[name].items())
    return figures, clock(summary.wall_time_s), note


def _divide_threads(config: DictConfig, jobs: int) -> int | None:
    """Return the threads for each job: the processors, divided by the jobs that the launcher runs at a time. None if it
    runs one by one, or on a cluster, whose scheduler gives each job its own."""
    launcher = config.hydra.launcher
    if "joblib" not in str(launcher.get("_target_")):
        return None
    processors = available()
    at_a_time = int(launcher.n_jobs)
    if at_a_time < 0:  # joblib: -1 is all processors, -2 all but one
        at_a_time = max(1, processors + 1 + at_a_time)
    return max(1, processors // max(1, min(at_a_time, jobs)))
