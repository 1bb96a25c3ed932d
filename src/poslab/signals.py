"""Ctrl-C and SIGTERM, or what a scheduler sends ahead of that: the first asks a run to stop at the next place where it
can save itself, the second ends it."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_USERS = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))  # none on Windows
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *_USERS)


_TWICE_S = 5.0  # within which a scheduler and a launcher may both send the same one


class Interrupted(BaseException):
    """Raised by a signal. No Exception, like KeyboardInterrupt, so that nothing takes it for a fault."""

    def __init__(self, number: int, message: str = "interrupted") -> None:
        self.number = number
        super().__init__(message)

    @property
    def exit_code(self) -> int:
        """The code that shells expect: 130 for Ctrl-C, 143 for SIGTERM and what announces it."""
        return exit_code(self.number)


def exit_code(number: int) -> int:
    """That of a program which this signal has ended."""
    return 128 + (signal.SIGTERM if number in _USERS else number)


class StopRequest:
    """Remembers whether a signal has asked the run to stop: `number` is the signal's, None so far."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._since = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context, the first signal is remembered, and a second one raises Interrupted at once."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            if _may_handle():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def listen(self) -> None:
        """Installs the signal handlers, again where a library has replaced them."""
        if _may_handle():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self._since = number, time.monotonic()
        elif number == signal.SIGINT or number != self.number or time.monotonic() - self._since > _TWICE_S:
            raise Interrupted(number)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Within this context, this process ignores Ctrl-C, and what a scheduler sends to all of a job's processes alike;
    processes that it starts here ignore it for good."""
    if not _may_handle():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_USERS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def end_with_parent() -> None:
    """From now on, a process that multiprocessing has started ends when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _may_handle() -> bool:
    """Whether Python lets this thread install signal handlers."""
    return threading.current_thread() is threading.main_thread()


_received: list[int] = []


def raise_on_signals(within: float | None = 3) -> None:
    """From now on, these signals raise Interrupted.

    within: seconds after which the program ends even if an import or a destructor has swallowed that exception; None
        where the program needs an unknown time to stop its jobs.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if within is not None:
            last_resort = threading.Timer(within, os._exit, args=[exit_code(number)])
            last_resort.daemon = True
            last_resort.start()
        raise Interrupted(number)

    for number in _SIGNALS:
        signal.signal(number, handle)


def received_signal() -> int | None:
    """The last signal that `raise_on_signals` has turned into an exception, even if an interrupted import has made
    another error of it; None if there was none."""
    return _received[-1] if _received else None
