"""Processors: what other programs compute is seen and said, and how threads wait is set before torch is loaded."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from poslab import processors
from poslab.processors import busy_with_others, compute_on, prepare

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system doesn't say")


@pytest.fixture
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment of a shell that says nothing of threads."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(processors, "_start", None)


def test_threads_wait_shortly_unless_the_user_says_how(nobody_chose: None, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()
    assert os.environ["GOMP_SPINCOUNT"] == processors.SPINS
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    prepare()
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    prepare()
    assert "GOMP_SPINCOUNT" not in os.environ


@contextmanager
def a_busy_processor() -> Iterator[None]:
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


@ONLY_LINUX
def test_others_that_compute_are_named_where_nobody_chose_threads(
    nobody_chose: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_busy_processor():
        prepare()
        assert any(busy_with_others() for _ in range(10**6))  # as soon as its time is counted
        compute_on(None)
        assert "note: other programs compute on about" in capsys.readouterr().err
        compute_on(2)
        assert (torch.get_num_threads(), capsys.readouterr().err) == (2, "")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert busy_with_others() == []
