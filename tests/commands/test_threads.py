"""Threads: how they wait is set before torch is loaded."""

import os

import pytest

from poslab.commands.cli import SPINS, let_threads_sleep


def test_threads_wait_shortly_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    let_threads_sleep()
    assert os.environ["GOMP_SPINCOUNT"] == SPINS
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    let_threads_sleep()
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    let_threads_sleep()
    assert "GOMP_SPINCOUNT" not in os.environ
