"""Ctrl-C and SIGTERM: the first asks a run to end at the next place from which it can go on, the second ends it now."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Ended by a signal. Like KeyboardInterrupt no Exception, so that nothing takes it for a fault."""

    def __init__(self, number: int, message: str = "interrupted") -> None:
        self.number = number
        super().__init__(message)

    @property
    def exit_code(self) -> int:
        """As shells count: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class StopRequest:
    """The signal that has asked for an end; None so far."""

    def __init__(self) -> None:
        self.number: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts, a first signal is noted, and a second one raises Interrupted wherever the program is."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            if _may_handle():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def listen(self) -> None:
        """Takes the signals (again, where a library has put a handler of its own in the place of this one)."""
        if _may_handle():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise Interrupted(number)
        self.number = number


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """What is started within this ignores Ctrl-C for good; this process does so for as long as it takes."""
    if not _may_handle():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _may_handle() -> bool:
    return threading.current_thread() is threading.main_thread()


_received: list[int] = []


def raise_on_signals(within: float | None = 3) -> None:
    """From now on, both signals raise Interrupted; where an import or a destructor swallows that, the program ends
    nonetheless after so many seconds. None: it takes the time that it takes."""

    def handle(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if within is not None:
            last_resort = threading.Timer(within, os._exit, args=[128 + number])
            last_resort.daemon = True
            last_resort.start()
        raise Interrupted(number)

    for number in _SIGNALS:
        signal.signal(number, handle)


def received_signal() -> int | None:
    """The signal that was raised, even if what it interrupted has made another error of it, as half-done imports do."""
    return _received[-1] if _received else None
