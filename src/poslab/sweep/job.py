"""One job of a sweep: what `python scripts/train.py` would do, in a fresh process that has torch loaded already.

Nothing can leak from one job to the next, and a job that crashes takes nothing along. The process comes from Python's
fork server, which has imported torch and Lightning once and done nothing else.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from filelock import Timeout

from poslab.errors import SettingError, UserError
from poslab.interruption import Interrupted, deaf_to_interrupts, raise_on_signals
from poslab.runs.folder import RunFolder
from poslab.settings.train import TrainConfig
from poslab.sweep.status import Status, StatusFile


def run_job(config: TrainConfig, overrides: list[str]) -> None:
    """Trains into config.settings.run_dir unless that is finished, or another process is at it. The screen output goes
    to the job's log, and how it ended to its status; only an interruption raises."""
    folder = Path(str(config.settings.run_dir))
    status_file = StatusFile(folder)
    with contextlib.suppress(Timeout), status_file.claim():
        if RunFolder(folder).finished:
            return
        status_file.write(Status("running"))
        started = time.perf_counter()
        reason = _run_alone(config, overrides, status_file.log)
        status_file.write(Status("failed" if reason else "finished", time.perf_counter() - started, reason))


def _run_alone(config: TrainConfig, overrides: list[str], log: Path) -> str:
    """Why it failed; empty if it didn't."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"  # on Windows
    # Not only asked for, but made the default, which the new process takes over: in joblib's workers that is another,
    # which only they know.
    multiprocessing.set_start_method(method, force=True)
    context: Any = multiprocessing.get_context(method)
    context.set_forkserver_preload(["poslab.training"])
    if method == "forkserver":
        with deaf_to_interrupts():  # it would tell at length of what it was importing
            forkserver.ensure_running()
    command = [sys.argv[0], *overrides]
    process = context.Process(target=_train, args=(config, command, log))
    process.start()
    try:
        process.join()
    except (KeyboardInterrupt, Interrupted):
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


def _train(config: TrainConfig, command: list[str], log: Path) -> None:
    """In the new process. `command` is what would run this job alone, should Lightning start more processes of it."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is the sweep's, which tells this process to end
    raise_on_signals()
    sys.argv = command
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("w", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    try:
        _train_or_go_on(config)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Interrupted as interrupted:
        print(interrupted, file=sys.stderr)
        sys.exit(interrupted.exit_code)


def _train_or_go_on(config: TrainConfig) -> None:
    """Goes on with what an interrupted run of the same job has saved; where that is nothing intact, starts over."""
    from poslab.training import train

    folder = Path(str(config.settings.run_dir))
    if RunFolder(folder).resumable:
        try:
            train(replace(config, settings=replace(config.settings, resume=str(folder))))
            return
        except SettingError as error:
            if error.option != "resume":
                raise
            print(f"{error}; starting over", file=sys.stderr)
    RunFolder(folder).clear()
    train(config)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
