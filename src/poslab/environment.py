"""What a command finds around it: variables, files and folders that notebooks, cluster templates and containers leave
behind, and that the libraries read."""

import io
import os
import re
import site
import sys
import sysconfig
import traceback
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

from poslab.errors import UserError
from poslab.processes import require_launcher


def prepare() -> None:
    """Set what the libraries read when they are loaded, and let commands find modules in the current folder. Call it
    before anything else. Raises UserError for what no command can work with."""
    if sys.flags.optimize:  # by which docstrings, which --help shows, or checks are lost
        raise UserError("PYTHONOPTIMIZE, or python -O: removes checks that poslab needs; unset it")
    require_launcher()
    os.environ.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)  # once set against errors of a protobuf of old
    # Pictures are files and look the same everywhere: a notebook's backend isn't there in other processes.
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}
    # A thread that waits spins, by default 300,000 times with GNU's OpenMP, so two trainings of two threads each on two
    # cores slow each other to an eighth. After 3,000 spins each of the two trains at 617 instead of 163 tokens/s, and
    # one alone as fast as before (AMD EPYC: 1,374 and 1,364 tokens/s).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    try:
        sys.path.append(os.getcwd())  # optim._target_=my_file.Mine finds my_file.py where the command is given
    except FileNotFoundError as error:
        raise UserError("the current folder has been deleted; cd into another") from error
    ignore_matplotlibrc()
    # A model may write characters that the terminal doesn't have; and a file shows a line once it is printed.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace", line_buffering=True)


def ignore_matplotlibrc() -> None:
    """Load matplotlib where it doesn't find a matplotlibrc of the current folder, if there is one: it would come before
    that of MATPLOTLIBRC, and may ask for LaTeX, which may be missing."""
    if os.path.exists("matplotlibrc"):
        with chdir(os.sep):
            import matplotlib  # noqa: F401


# Variables that libraries on the path read.
_READ = re.compile(
    "(MPL|MATPLOTLIB|TORCH|PYTORCH|CUDA|OMP|MKL|KMP|SLURM|LSB|JSM|PL|TPU|PJRT|XLA|HF|HYDRA|TF|PROTOCOL|TIKTOKEN|MASTER|"
    "NODE|WANDB|MLFLOW)_?"
)


def blamed(error: Exception) -> str | None:
    """Return the line that tells what to change, if a library has raised an error for something around the command:
    a variable, whose value its message has; a module in the current folder that is no library's; a warning that is made
    an error. None for any other error."""
    words = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, Warning) and sys.warnoptions:
        return f"PYTHONWARNINGS={','.join(sys.warnoptions)}: makes an error of a library's warning; unset it ({words})"
    if (file := _in_place_of_a_library(error)) is not None:
        return f"{file}: has the name of a module that a library looks for; rename it ({words})"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not _installed(frames[-1].filename):
        return None
    found: dict[str, list[str]] = {}
    for name, value in os.environ.items():
        whole = rf"(?<![\w./-]){re.escape(value)}(?![\w./-])"  # so that a path within it is no such folder's fault
        if _READ.match(name) and len(value) > 2 and re.search(whole, words):
            found.setdefault(value, []).append(name)
    if not found:
        return None
    value, names = next(iter(found.items()))
    return f"{' or '.join(names)}={value}: a library can't use it; unset it ({words})"


def _in_place_of_a_library(error: Exception) -> str | None:
    """Return the file of the current folder that an installed library has imported, if the error comes from it, and not
    from a call of something in it, as of a callback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    found = [(importer.filename, frame.filename) for importer, frame in pairwise(frames) if frame.name == "<module>"]
    module = getattr(error, "obj", None)  # of an AttributeError
    for file in (getattr(error, "path", None), getattr(module, "__file__", None)):
        found += [(frames[-1].filename, file)] if file and frames else []
    for importer, file in found:
        if _installed(importer) and Path(file).parent == Path.cwd():
            return Path(file).name
    return None


def _installed(file: str) -> bool:
    folders = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    return file.startswith(tuple(folders)) or file.startswith("<frozen")
