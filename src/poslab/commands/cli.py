"""What all scripts share: whatever the user can put right is said in one line, exit code 2; what nobody foresaw goes
to a log."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, NoReturn, TypeVar

from poslab import processors
from poslab.config.command_line import help_text, parse_line
from poslab.config.program import as_called
from poslab.errors import Fault, UserError
from poslab.positions.contract import hook_at_fault
from poslab.runs.folder import RunFolder
from poslab.runs.processes import end, processes
from poslab.signals import Interrupted, raise_on_signals, received_signal

Schema = TypeVar("Schema")


def run_script(task: Callable[[Schema], object], schema: type[Schema], script: str) -> None:
    """Runs `task` with the command line as one of the dataclasses of poslab.config.scripts, or prints --help."""
    arguments, debug = start()
    with told_in_one_line(script, arguments, debug):
        if {"-h", "--help"} & set(arguments):
            print(as_called(help_text(schema)))
        else:
            task(parse_line(schema, arguments))


def start() -> tuple[list[str], bool]:
    """Prepares the process of a script; returns its arguments without debug=true, and whether that was given."""
    processors.prepare()
    sys.path.append(os.getcwd())  # pos._target_=my_file.MyScheme finds my_file.py where the command is given
    for stream in (sys.stdout, sys.stderr):  # a model may write characters that the terminal doesn't have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    raise_on_signals()
    choices = [a.lower() == "debug=true" for a in sys.argv[1:] if a.lower() in ("debug=true", "debug=false")]
    sys.argv[1:] = [a for a in sys.argv[1:] if a.lower() not in ("debug=true", "debug=false")]
    return sys.argv[1:], bool(choices and choices[-1])


@contextmanager
def told_in_one_line(
    script: str, arguments: list[str], debug: bool, explain: Callable[[Exception], str | None] = lambda _: None
) -> Iterator[None]:
    """Ends the program with one line on stderr for whatever goes wrong.

    arguments: as typed; they must be text in UTF-8, or no file of a run could hold them.
    explain: what to say of an exception that is the user's after all; None where it isn't.
    """
    try:
        for argument in arguments:
            _check_readable(argument)
        yield
    except UserError as error:
        cause = "".join(traceback.format_exception(error.__cause__)) if debug and error.__cause__ else ""
        _stop(f"{error}\n{cause}".rstrip(), error.exit_code)
    except (Interrupted, KeyboardInterrupt) as interruption:
        _end_interrupted(interruption)
    except BrokenPipeError:  # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's last flush would complain
        sys.exit(141)  # as a shell counts SIGPIPE
    except Exception as error:
        if (line := explain(error)) is not None:
            _stop(line)
        if (number := received_signal()) is not None:
            _end_interrupted(Interrupted(number))
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _stop(f"nothing more can be written: {error.strerror}", exit_code=1)
        _stop(_report(error, script, debug), exit_code=1)


def _check_readable(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UserError(f"{argument.encode(errors='replace').decode()}: must be text in UTF-8") from None


def _end_interrupted(interruption: BaseException) -> NoReturn:
    _exit(end(f"\n{str(interruption) or 'interrupted'}", getattr(interruption, "exit_code", 130), meets=False))


def _stop(message: str, exit_code: int = 2) -> NoReturn:
    _exit(end(f"error: {message}", exit_code))


def _exit(code: int) -> NoReturn:
    """Ends the program; one of several processes at once: torch's threads between them, of which some are gone, now and
    then abort an interpreter that ends in its usual order."""
    if processes.size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _report(error: Exception, script: str, debug: bool) -> str:
    """Writes the traceback to the log in the run's folder, or to a temporary file where there is no run; returns the
    line for the user, with the traceback after it if `debug`."""
    cause = error.__cause__ if isinstance(error, Fault) and error.__cause__ else error
    story = "".join(traceback.format_exception(cause))
    hook = hook_at_fault(cause)
    line = f"unexpected {type(cause).__name__}{f' in {hook}' if hook else ''}: {' '.join(str(cause).split())}"
    line = line if len(line) <= 300 else f"{line[:297]}..."
    try:
        with _log_of(error.folder if isinstance(error, Fault) else None, script) as log:
            log.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {script}\n{story}\n")
        where = f"all that is known is in {log.name}"
    except OSError as problem:
        where = f"no log could be written: {problem.strerror}"
    return f"{line}; {where}" if not debug else f"{line}; {where}\n{story.rstrip()}"


def _log_of(folder: Path | None, script: str) -> IO[str]:
    if folder is not None:
        return RunFolder(folder).error_log.open("a", encoding="utf-8")
    return NamedTemporaryFile("w", prefix=f"poslab-{script}-", suffix=".log", delete=False, encoding="utf-8")
