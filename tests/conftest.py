"""Fixtures that several test files share."""

import os

# One thread per process, those that tests start included: tensors as small as here gain nothing from more.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # as poslab.distributed does before torch is loaded

import contextlib
import functools
import io
import json
import runpy
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import torch
from common import REPOSITORY, RunScript, compose_config
from processes import without_pictures
from runs_to_evaluate import make_run
from tensorboard.summary.writer import event_file_writer

from poslab.data.tokenizer import load_tokenizer
from poslab.training.train import train

# TensorBoard reads files of one process and second in the order of their numbers as text, 10 before 9. A process of
# tests trains that often, and resumes within a second.
event_file_writer._global_uid = event_file_writer.AtomicCounter(10**6)


@pytest.fixture(scope="session")
def reference_cases() -> dict:
    return json.loads((Path(__file__).parent / "positions/reference_cases.json").read_text())


@pytest.fixture(scope="session")
def gpt2() -> tiktoken.Encoding:
    return load_tokenizer("gpt2")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Named files run in this process, which saves the start of others, and where -s and debuggers work."""
    named = any(".py" in argument for argument in config.args)
    return 0 if named or config.option.capture == "no" else None  # None: as many as there are processors


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a test before may have trained with more


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what takes most of the time of a report."""
    for panels in ("loss_panels", "model_panels"):
        monkeypatch.setattr(f"poslab.comparison.of_runs.{panels}", lambda *given: ([], []))


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report names its pictures, but nothing is drawn in them."""
    monkeypatch.setattr("seedstats.page.svg.svg", lambda figure: "<svg/>")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError("the network is blocked")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.fixture
def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str, str]]:
    """Run a program with arguments in this process, which saves the seconds that a new one takes to start: exit code,
    stdout, stderr."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr("poslab.commands.cli.raise_on_signals", lambda: None)  # pytest's own way stays

    def run(main: Callable[[], object], *argv: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", [*argv])
        capsys.readouterr()
        code: Any = 0
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        output, errors = capsys.readouterr()
        return code, output, errors + "".join(f"{warning.message}\n" for warning in warned)

    return run


@pytest.fixture
def run_script(run_main: Callable[..., Any]) -> RunScript:
    """Run scripts/<name>.py with arguments in this process."""

    def run(name: str, *arguments: str) -> tuple[Any, str, str]:
        path = str(REPOSITORY / "scripts" / f"{name}.py")
        return run_main(lambda: runpy.run_path(path, run_name="__main__"), path, *arguments)

    return run


@pytest.fixture
def script(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, run_script: RunScript, tmp_path: Path
) -> RunScript:
    """Run the script that the test file is named after, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(run_script, request.path.stem.removeprefix("test_"))


@pytest.fixture(autouse=True)
def no_pictures_of_training(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves them out wherever a test trains in this process, unless it is marked `pictures`."""
    with contextlib.nullcontext() if "pictures" in request.keywords else without_pictures():
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives the finished run of these settings, trained once in a session: to be read, or copied first."""

    @functools.cache
    def train_once(*overrides: str) -> Path:
        folder = tmp_path_factory.mktemp("trained") / "run"
        with without_pictures(), contextlib.redirect_stdout(io.StringIO()):
            train(compose_config(*overrides, f"run_dir={folder}"))
        return folder

    return train_once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives a run of random weights with these settings, made once in a session: to be read, or copied first."""
    return functools.cache(lambda *overrides: make_run(tmp_path_factory.mktemp("made") / "run", *overrides))


@pytest.fixture(autouse=True)
def warnings_of_lightning() -> None:
    # Lightning uses a deprecated torch function; a run filters the same message.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")


_QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'browser'")
    installed = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    with playwright.sync_playwright() as started:
        chromium = started.chromium
        executable = next(filter(None, installed), chromium.executable_path)
        if not Path(executable).exists():
            pytest.skip("there is no Chromium; `playwright install chromium` gets one")
        opened = chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu", *_QUIET])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page; what it asks for and complains of is in its `heard`."""
    pages = []

    def opening(file: Path, width: int, medium: str = "screen") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.heard = []
        page.on("console", lambda message: page.heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.heard.append(f"error: {error}"))
        page.on("request", lambda request: page.heard.append(request.url))
        page.emulate_media(media=medium)
        page.goto(file.as_uri())
        page.wait_for_load_state("networkidle")
        return page

    yield opening
    for page in pages:
        page.close()
