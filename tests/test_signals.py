"""Signals: the exit codes that shells expect."""

import signal

from poslab.signals import Interrupted


def test_exit_codes_of_signals() -> None:
    assert Interrupted(signal.SIGINT).exit_code == 130
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        assert Interrupted(number).exit_code == 143
