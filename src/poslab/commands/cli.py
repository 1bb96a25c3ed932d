"""Program `poslab` and its commands, each of which is a script, too; a user's error is one line on stderr."""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn, TypeVar

import poslab
from poslab.config import scripts
from poslab.config.command_line import NAME, as_called, command_line, help_text, parse_line
from poslab.environment import prepare
from poslab.errors import UserError, suggestion
from poslab.processes import rank
from poslab.signals import Interrupted, raise_on_signals
from seedstats.page.terminal import visible

Schema = TypeVar("Schema")


@dataclass(frozen=True)
class Command:
    """Command: its line in `poslab --help`, and the function that runs it with the arguments after its name."""

    purpose: str
    run: Callable[[list[str]], None]


def _imported_later(command: str, function: str, count: int = 1) -> Callable[..., None]:
    """Return a command's function, imported once the command line is checked, which needs no torch. count: how many it
    takes of the arguments that `plain_command` gives, settings and the command as typed."""
    return lambda *arguments: getattr(import_module(f"poslab.commands.{command}"), function)(*arguments[:count])


def plain_command(name: str, schema: type[Schema], work: Callable[[Schema, str], None]) -> Command:
    """Make the command whose settings are the fields of a dataclass, and whose purpose its docstring begins with."""

    def run(arguments: list[str]) -> None:
        if {"-h", "--help"} & set(arguments):
            print(as_called(help_text(schema)))
        else:
            work(parse_line(schema, arguments), command_line(name, *arguments))

    return Command(str(schema.__doc__).partition("\n")[0], run)


def bare_command(purpose: str, work: Callable[[], None]) -> Command:
    """Make a command that takes no settings."""

    def run(arguments: list[str]) -> None:
        if {"-h", "--help"} & set(arguments):
            print(purpose)
        elif arguments:
            raise UserError(f"{arguments[0]}: this command takes nothing after its name")
        else:
            work()

    return Command(purpose, run)


COMMANDS = {
    "train": Command(
        "Train a GPT-style transformer with any positional encoding, or with -m a sweep of them.",
        _imported_later("train", "run_train"),
    ),
    "compare": plain_command("compare", scripts.CompareConfig, _imported_later("compare", "run_comparison", 2)),
    "evaluate": plain_command("evaluate", scripts.EvaluateConfig, _imported_later("evaluate", "run_evaluation")),
    "explain": plain_command("explain", scripts.ExplainConfig, _imported_later("explain", "run_explanation", 2)),
    "generate": plain_command("generate", scripts.GenerateConfig, _imported_later("generate", "run_generation")),
    "export": plain_command("export", scripts.ExportConfig, _imported_later("export", "run_export")),
    "check": plain_command("check", scripts.CheckConfig, _imported_later("check", "run_check")),
    "track": plain_command("track", scripts.TrackConfig, _imported_later("track", "run_track")),
    "list": Command(
        "List the schemes, tasks, texts, models and experiments there are.", _imported_later("list", "run_list")
    ),
    "info": bare_command(
        "Show versions, devices and attention backends on this machine.", _imported_later("info", "print_info", 0)
    ),
    "version": bare_command("Show the version.", lambda: print(f"{NAME} {poslab.__version__}")),
}


def main(command: str | None = None) -> None:
    """Run `poslab COMMAND ...`; a file of scripts/ names its command, and has the arguments only."""
    run_program(_run, sys.argv[1:] if command is None else [command, *sys.argv[1:]])


def run_program(run: Callable[[list[str]], None], arguments: list[str]) -> None:
    """Prepare the process of a command and run it, with a user's errors in one line."""
    raise_on_signals()
    with one_line_errors():
        prepare()
        run(arguments)


def _run(arguments: list[str]) -> None:
    name, *rest = arguments or ["--help"]
    if name == "help" and rest and rest[0] in COMMANDS:
        COMMANDS[rest[0]].run([*rest[1:], "--help"])
    elif name in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        commands = [f"  {NAME} {command:<{width}}  {about.purpose}" for command, about in COMMANDS.items()]
        print("Train GPT-style transformers that differ only in their positional encoding, and compare them.")
        print("", *commands, "", sep="\n")
        print(f"{NAME} COMMAND --help shows what each takes, {NAME} --version the version.")
    elif name in ("-v", "-V") or "--version" in arguments:
        COMMANDS["version"].run([])
    elif name in COMMANDS:
        if name != "compare":  # which reads folders of any name, while a run's files are UTF-8
            _require_utf8(rest)
        COMMANDS[name].run(rest)
    elif "=" in name:
        raise UserError(f"{name}: a command comes first, as in {command_line('train', *arguments)}")
    else:
        raise UserError(f"{name}: {_meant_by(name, rest)}")


def _meant_by(word: str, after: Sequence[str]) -> str:
    """Return what to type in place of a word that is no command, with the words after it."""
    from poslab.config.groups import names
    from poslab.config.overrides import config_groups  # which loads Hydra

    if word in (*config_groups(), *names()):
        value = after[0] if after else "VALUE"
        return f"a setting and no command, as in {command_line('train', f'{word}={value}')}"
    return f"unknown command; {suggestion(word, COMMANDS)}"


def _require_utf8(arguments: list[str]) -> None:
    """Raise UserError for an argument with bytes that are no UTF-8, as a file's name may have."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{argument!a}: is not UTF-8, as poslab's files are; rename it, or type it in UTF-8"
            ) from error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the program with one line on stderr for a user's error or an interruption; others keep their traceback."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as interruption:
        _end(f"\n{str(interruption) or 'interrupted'}", getattr(interruption, "exit_code", 130))
    except BrokenPipeError:  # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's last flush would complain
        sys.exit(141)  # as a shell counts SIGPIPE
    except Exception as error:
        if isinstance(error, UserError):
            _end(f"error: {error}", error.exit_code)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _end(f"error: nothing more can be written: {error.strerror}", 1)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            _end(f"error: {error.filename}: {error.strerror}", UserError.exit_code)
        if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":  # of the name of a folder around
            start = error.object.rfind("\n", 0, error.start) + 1
            line = error.object[start:].partition("\n")[0].strip()
            _end(
                f"error: {line!a}: is not UTF-8, as poslab's files are; rename it, or type it in UTF-8",
                UserError.exit_code,
            )
        raise


def _end(message: str, code: int) -> NoReturn:
    """End the program; but rank zero tells why, and by which code: for that of others Lightning would kill it first."""
    if rank() == 0:
        print(visible(message), file=sys.stderr)  # names in somebody's file may hold what a terminal obeys
    sys.exit(code if rank() == 0 else 0)
