"""Signals: the first Ctrl-C or SIGTERM, or a scheduler's warning ahead of that, stops a run at the next point where it
can save itself; the second ends it."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

_USERS = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))  # none on Windows
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *_USERS)
_TWICE_S = 5.0  # within which a scheduler and a launcher may both send the same one


class Interrupted(BaseException):
    """Interruption by a signal. No Exception, like KeyboardInterrupt, so that nothing takes it for an error."""

    def __init__(self, number: int, message: str = "interrupted") -> None:
        self.number = number
        super().__init__(message)

    @property
    def exit_code(self) -> int:
        """Exit code that shells expect: 130 for Ctrl-C, 143 for SIGTERM and the signals that announce it."""
        return 128 + (signal.SIGTERM if self.number in _USERS else self.number)


class StopRequest:
    """Request to stop a run: `number` is that of the signal, None so far."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._since = 0.0

    def listening(self) -> AbstractContextManager[None]:
        """Remember the first signal within this context; a second one raises Interrupted at once."""
        return _handled(_SIGNALS, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self._since = number, time.monotonic()
        elif number == signal.SIGINT or number != self.number or time.monotonic() - self._since > _TWICE_S:
            raise Interrupted(number)


def deaf_to_interrupts() -> AbstractContextManager[None]:
    """Ignore Ctrl-C within this context, and what a scheduler sends to all of a job's processes alike; processes that
    are started here ignore it for good."""
    return _handled((signal.SIGINT, *_USERS), signal.SIG_IGN)


@contextmanager
def _handled(
    numbers: Sequence[int], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    """Install a signal handler within this context, where Python lets this thread do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


def end_with_parent() -> None:
    """End this process, which multiprocessing has started, when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def raise_on_signals(within: float | None = 3) -> None:
    """Let signals raise Interrupted from now on.

    within: seconds after which the program ends even if an import or a destructor has swallowed that exception; None
        where the program needs an unknown time to stop its jobs.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        interruption = Interrupted(number)
        if within is not None:
            last_resort = threading.Timer(within, os._exit, args=[interruption.exit_code])
            last_resort.daemon = True
            last_resort.start()
        raise interruption

    for number in _SIGNALS:
        signal.signal(number, handle)
