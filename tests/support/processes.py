"""Scripts in processes of their own that have torch loaded already: 0.2 seconds each instead of four.

They come from Python's fork server, which has imported torch and Lightning once and done nothing else, as the jobs of a
sweep do. Training draws no pictures in them. What all this leaves out is tested by one true subprocess per script,
among the slow tests.
"""

import io
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from pytorch_lightning import Callback

REPOSITORY = Path(__file__).resolve().parents[2]
PRELOADED = ["poslab.sweep.loaded", "torch.utils.tensorboard", "poslab.commands.cli", "poslab.comparison.of_runs"]


class Script:
    """scripts/<name>.py under way: as much of subprocess.Popen as tests need."""

    def __init__(
        self,
        name: str,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
    ) -> None:
        """env: in addition to this process's. stdout: a file or a pipe to write to; by default `finish` returns it."""
        self.arguments = [str(REPOSITORY / "scripts" / f"{name}.py"), *arguments]
        self._outputs = Path(tempfile.mkdtemp(prefix="poslab-test-"))
        self._stdout = stdout or self._outputs / "stdout"
        self._stderr = self._outputs / "stderr"
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        environment = {**os.environ, **(env or {})}
        self.process = context.Process(
            target=_run, args=(self.arguments, cwd, environment, self._stdout, self._stderr), daemon=False
        )
        self.process.start()

    def poll(self) -> int | None:
        return self.process.exitcode  # type: ignore[no-any-return]

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait_for(self, path: Path) -> None:
        """Returns once the script has written that file."""
        while not path.exists():
            assert self.poll() is None, self._stderr.read_text()
            time.sleep(0.01)

    def finish(self, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Wait for its end; return its exit code and output. timeout: seconds, more than any takes when busy."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"{self.arguments} takes more than {timeout} seconds")
        output = self._stdout.read_text() if self._stdout.is_file() else ""
        return subprocess.CompletedProcess(self.arguments, self.process.exitcode, output, self._stderr.read_text())


def run_process(name: str, *arguments: str, cwd: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """scripts/<name>.py from its start to its end."""
    return Script(name, *arguments, cwd=cwd, **settings).finish()


_MEASURED = """
import resource, sys
sys.path.insert(0, sys.argv.pop(1))
from common import compose_config
from poslab.training.train import train
import matplotlib.figure, torch.utils.tensorboard
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
train(compose_config("experiment=smoke", "trainer=cpu", "data=text", *sys.argv[1:]))
print("grown by", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def measured_training(cwd: Path, *settings: str) -> "subprocess.Popen[str]":
    """Start a training on a text in a process of its own, whose last line is the memory it took above the imports."""
    command = [sys.executable, "-c", _MEASURED, str(Path(__file__).parent), *settings]
    command += ["data.cache_dir=cache", "trainer.limit_val_batches=5"]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True)


def grown_by(training: "subprocess.Popen[str]") -> tuple[str, int]:
    """Return what a measured training has printed, and KiB."""
    output, _ = training.communicate()
    assert training.returncode == 0
    return output, int(output.rsplit("grown by", 1)[1])


def _run(arguments: list[str], cwd: Path, environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    for number, name, path in ((1, "stdout", stdout), (2, "stderr", stderr)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        setattr(sys, name, io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), encoding=encoding))
    sys.argv = arguments
    with without_pictures():
        runpy.run_path(arguments[0], run_name="__main__")


def without_pictures() -> Any:
    """Trains without the pictures for TensorBoard, which take most of a short run's time."""
    return mock.patch("poslab.training.trainer.Pictures", side_effect=lambda *_: Callback())
