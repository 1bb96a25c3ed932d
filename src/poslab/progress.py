"""Progress of what takes long: a bar on a terminal, a line a minute elsewhere, such as in a file or a notebook."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


class Minute:
    """Time since something was printed. now: returns seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.begin()

    def begin(self) -> None:
        self._begun = self.now()

    def is_over(self) -> bool:
        """Return whether a minute is over; then the next one begins."""
        if self.now() < self._begun + 60:
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
    total, minute = len(items) if isinstance(items, Sized) else total, Minute(now)
    for number, item in enumerate(items, 1):
        yield item
        if minute.is_over():
            print(f"{what}: {number:,} of {total:,}" if total else f"{what}: {number:,}", file=sys.stderr, flush=True)
