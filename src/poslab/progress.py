"""Progress of what takes long: a bar on a terminal, a line every ten seconds elsewhere, as in a file or a notebook."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


class Interval:
    """Time since something was printed. seconds: after which it is over. now: returns seconds."""

    def __init__(self, seconds: float = 10, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.now = now
        self.begin()

    def begin(self) -> None:
        self._begun = self.now()

    def is_over(self) -> bool:
        """Return whether the interval is over; then the next one begins."""
        if self.now() < self._begun + self.seconds:
            return False
        self.begin()
        return True


def progress(
    items: Iterable[Item], what: str, total: int | None = None, now: Callable[[], float] = time.monotonic
) -> Iterator[Item]:
    """Yield the items, and show on stderr how many are done. what: is done with them. total: how many there are, if
    `items` doesn't know."""
    if sys.stderr.isatty():
        yield from tqdm(items, desc=what, total=total, leave=False, delay=1)
        return
    total = len(items) if isinstance(items, Sized) else total
    interval = Interval(now=now)
    for number, item in enumerate(items, 1):
        yield item
        if interval.is_over():
            print(f"{what}: {number:,} of {total:,}" if total else f"{what}: {number:,}", file=sys.stderr, flush=True)
