"""What a command finds around it: variables, files and folders that notebooks, cluster templates and containers leave
behind, and that the libraries read."""

import io
import os
import sys
from contextlib import chdir

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
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # or it would look for some in every package
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
