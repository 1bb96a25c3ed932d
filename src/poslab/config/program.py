"""How this program was called: as `poslab train ...`, or as a script of the checkout, `python scripts/train.py ...`.
Messages and pages that name a command name it in the same way."""

import re
import shlex
import sys
from pathlib import Path

from poslab.config.files import BUNDLED

NAME = "poslab"


def argv_of(command: str, *arguments: str) -> list[str]:
    """sys.argv of a command that is called as this one was."""
    called = Path(sys.argv[0])
    if _is_script(called):
        return [str(called.with_name(f"{command}.py")), *arguments]
    return [sys.argv[0], command, *arguments]


def command_line(command: str, *arguments: str) -> str:
    """What to type for a command, quoted for a shell."""
    program = ["python", argv_of(command)[0]] if _is_script(Path(sys.argv[0])) else [NAME, command]
    return shlex.join([*program, *arguments])


def command_line_here(command: str, *arguments: str) -> str:
    """Return `command_line`, after a `cd` into this folder where the program lies outside: paths may be relative."""
    line = command_line(command, *arguments)
    if Path(sys.argv[0]).resolve().is_relative_to(Path.cwd()):
        return line
    return shlex.join(["cd", str(Path.cwd())]) + f" && {line}"


def as_called(examples: str) -> str:
    """A text with indented examples `poslab COMMAND ...`, each as it is to be typed."""
    return re.sub(rf"^( +){NAME} (\w+)", lambda found: found[1] + command_line(found[2]), examples, flags=re.MULTILINE)


def _is_script(called: Path) -> bool:
    return called.suffix == ".py" and called.resolve().parent == BUNDLED / "scripts"
