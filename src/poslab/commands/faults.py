"""What nobody foresaw: said in one line, and told in full in a log."""

import os
import tempfile
import traceback
from datetime import datetime
from pathlib import Path

from poslab.errors import Fault
from poslab.runs.folder import RunFolder


def report(error: Exception, script: str, debug: bool) -> str:
    """Writes the traceback to the log in the run's folder, or to a temporary file where there is no run; returns the
    line for the user, with the traceback before it if `debug`."""
    cause = error.__cause__ if isinstance(error, Fault) and error.__cause__ is not None else error
    story = "".join(traceback.format_exception(cause))
    line = f"unexpected {type(cause).__name__}: {' '.join(str(cause).split())}"
    line = line if len(line) <= 300 else f"{line[:297]}..."
    try:
        log = _write(story, script, error.folder if isinstance(error, Fault) else None)
        where = f"all that is known is in {log}"
    except OSError as problem:
        where = f"no log could be written: {problem.strerror}"
    return f"{line}; {where}" if not debug else f"{line}; {where}\n{story.rstrip()}"


def _write(story: str, script: str, folder: Path | None) -> Path:
    if folder is None:
        number, name = tempfile.mkstemp(prefix=f"poslab-{script}-", suffix=".log", text=True)
        os.close(number)
        log = Path(name)
    else:
        log = RunFolder(folder).error_log
    with log.open("a", encoding="utf-8") as opened:
        opened.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {script}\n{story}\n")
    return log
