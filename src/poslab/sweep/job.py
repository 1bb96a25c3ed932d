"""Job of a sweep: the work of `poslab train`, in a fresh process that has torch loaded already.

Nothing can leak from one job to the next, and a crash ends no other. The process comes from Python's fork server, which
has imported `poslab.sweep.loaded` once and done nothing else.
"""

import contextlib
import io
import math
import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from poslab.config.command_line import argv_of
from poslab.config.train import TrainConfig
from poslab.config.trust import needs_allow_code
from poslab.errors import UserError, first_line
from poslab.metric import LOSS, PERPLEXITY
from poslab.processors import compute_on
from poslab.runs.code import fingerprints, parts_fingerprint
from poslab.runs.evaluation import unmeasured_lengths
from poslab.runs.folder import SWEEP, RunFolder, failure_in
from poslab.runs.summary import Summary
from poslab.signals import Interrupted, deaf_to_interrupts, end_with_parent, raise_on_signals


class JobFiles:
    """Log and lock of a job, <sweep>/.sweep/<job>.log: jobs may run on any machine, so its state is kept there."""

    def __init__(self, run_folder: Path) -> None:
        self.log = run_folder.parent / SWEEP / f"{run_folder.name}.log"

    @property
    def failure(self) -> str:
        """Return why the job failed; empty if it didn't, or has not ended."""
        return failure_in(self.log)

    def add_failure(self, reason: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as opened:
            opened.write(f"error: {reason}\n")

    def claim(self) -> FileLock:
        """Return a lock to hold while the job runs; `with` raises filelock.Timeout if another process holds it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.log.with_suffix(".lock"), timeout=0)

    @property
    def claimed(self) -> bool:
        """True if a process is running the job right now."""
        try:
            with self.claim():
                return False
        except Timeout:
            return True


def run_job(config: TrainConfig, overrides: list[str]) -> float:
    """Train into config.settings.run_dir, or evaluate the run there at the lengths that it lacks; do nothing if another
    process is at it. The screen output goes to the job's log, which ends with "error: ..." if it failed; only
    an interruption raises.

    Returns the best of the figure that `monitor` names. A run without one, as it diverged or failed, has the worst that
    there is, as a search would end at a number that is none.
    """
    folder = _folder(config)
    files = JobFiles(folder.path)
    with contextlib.suppress(Timeout), files.claim():
        done = folder.finished and not unmeasured_lengths(folder.path, config.evaluation)
        if not done and (reason := _run_alone(config, overrides, files.log)):
            files.add_failure(reason)
    best = Summary.read(folder.summary).best_monitored if folder.finished else None
    worst = math.inf if config.settings.monitor in (LOSS, PERPLEXITY.name) else -math.inf
    return worst if best is None else best


def _folder(config: TrainConfig) -> RunFolder:
    return RunFolder(Path(str(config.settings.run_dir)))


def _run_alone(config: TrainConfig, overrides: list[str], log: Path) -> str:
    """Run the job in a process of its own, and return why it failed; empty if it didn't."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"  # on Windows
    # Made the default, which the new process takes over, because joblib's workers have another one, which only they
    # know.
    multiprocessing.set_start_method(method, force=True)
    context: Any = multiprocessing.get_context(method)
    context.set_forkserver_preload(["poslab.sweep.loaded"])
    if method == "forkserver":
        with deaf_to_interrupts():  # at Ctrl-C it would print the traceback of what it was importing
            forkserver.ensure_running()
    folder = _folder(config)
    allowed = ["allow_code=true"] if needs_allow_code(config.plain) else []
    command = argv_of("train", *([f"resume={folder}", *allowed] if folder.is_run else overrides))
    process = context.Process(target=_run, args=(config, command, log, code_of(config)))
    process.start()
    try:
        process.join()
    except (KeyboardInterrupt, Interrupted, SystemExit):  # the last from submitit, which has the job requeued
        process.terminate()  # it saves what it has
        process.join(timeout=30)
        process.kill()
        raise
    code = process.exitcode or 0
    if code == 0:
        return ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}{' (out of memory?)' if -code == signal.SIGKILL else ''}"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else f"exit code {code}"


def _run(config: TrainConfig, command: list[str], log: Path, planned_code: dict[str, str | None]) -> None:
    """Run the job, in the new process.

    command: runs this job alone, for Lightning, should it start more processes of it. planned_code: fingerprints of the
    code when the sweep began.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C goes to the sweep alone, which tells this process to end
    raise_on_signals()
    end_with_parent()
    with log.open("w", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that the log shows how far the job is
    sys.argv = command
    try:
        train_or_evaluate(config, planned_code)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Interrupted as interrupted:
        print(interrupted, file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except Exception as error:
        traceback.print_exception(error)
        # Last, because there the reason is read.
        print(f"error: {type(error).__name__}: {first_line(error)}", file=sys.stderr)
        sys.exit(1)


def code_of(config: TrainConfig) -> dict[str, str | None]:
    """Return the fingerprints of all code that decides what a job gives."""
    return fingerprints(config.pos) | {"parts_fingerprint": parts_fingerprint(config.parts)}


def train_or_evaluate(config: TrainConfig, planned_code: dict[str, str | None]) -> None:
    """Train in this process, or measure a finished run at the lengths that its evaluation lacks. Raises UserError for
    whatever the user can put right."""
    if planned_code != code_of(config):
        raise UserError("the code has changed since the sweep began; the same command trains what it is now")
    folder = _folder(config)
    if folder.finished:
        from poslab.evaluation.files import evaluate_run

        compute_on(config.settings.threads)
        wanted, path = config.evaluation, config.text_path
        lengths = unmeasured_lengths(folder.path, wanted)
        evaluation = evaluate_run(
            folder.path, lengths, wanted.stride, wanted.last, data_path=path, named=config.classes
        )
        summary = Summary.read(folder.summary)
        replace(summary, metrics=summary.metrics | evaluation.metrics).write(folder.summary)
        return
    from poslab.training.train import train

    # The other way to resume is `resume=` on a command line (commands/train.py): both go to training/resume.py.
    if folder.is_run:
        config = replace(config, settings=replace(config.settings, resume=str(folder)))
    train(config)
