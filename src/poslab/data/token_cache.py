"""Cache of token files: pieces of a text are tokenised on all processors, once, and resumed after a kill.

A token file holds one id after the other, all of one type, then how many there are and their checksum, which are
verified on opening. The checksum begins with the file's name, which is the key of what it holds: under another name it
is no valid file. Files resume where they were saved last. No more pieces are in memory than are being tokenised.
"""

import json
import multiprocessing
import os
import signal
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self, TypeVar
from zlib import crc32

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from tqdm import tqdm

from poslab.config.files import write_whole
from poslab.data.pieces import Encoded
from poslab.data.tokenizer import Array
from poslab.errors import UserError
from poslab.processors import available
from poslab.signals import deaf_to_interrupts, end_with_parent

_TRAILER = struct.Struct("<QI")  # number of tokens, crc32 of name and bytes (0.2 s for 50 million on one core)
_BLOCK = 1 << 20  # bytes read at a time
_SAVE_EVERY = 16  # pieces, of a megabyte or so
_PROCESSORS = 32  # as fast as one thread reads; more would only take memory
_MUCH = 20 << 20  # bytes or characters that take a while

Item = TypeVar("Item")
Result = TypeVar("Result")
Files = Mapping[str, tuple[Path, torch.dtype]]  # "tokens", and "ends" of documents where those are wanted


def read_tokens(file: Path, dtype: torch.dtype) -> Tensor | None:
    """Return the tokens of a file, memory-mapped (N,); None where there is none, or, with a warning, a damaged one."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size - _TRAILER.size
            checksum = crc32(file.name.encode())
            for left in range(size, 0, -_BLOCK):
                checksum = crc32(opened.read(min(left, _BLOCK)), checksum)
            intact = size >= 0 and opened.read() == _TRAILER.pack(size // dtype.itemsize, checksum)
    except OSError:  # there is none yet, or no folder for it
        return None
    if not intact:
        print(f"warning: {file} is damaged or another's; it is made anew from the text", file=sys.stderr)
        return None
    if size == 0:
        return torch.empty(0, dtype=dtype)
    return torch.from_file(str(file), shared=False, size=size // dtype.itemsize, dtype=dtype)


class GrowingFiles:
    """Token files by name that appear whole and together; until then they grow under other names.

    `save` remembers their sizes and checksums, and how far what they are made of was read. Made again, it resumes
    there. A signal leaves what was saved, an error nothing. Raises OSError where they can't be written.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.read = 0  # pieces of what they are made of
        first, _ = next(iter(files.values()))
        self._unfinished = {name: file.with_name(f"{file.name}.unfinished") for name, (file, _) in files.items()}
        self._progress = first.with_name(f"{first.name}.progress")
        # Bytes and their checksum, which begins with the file's name.
        self._written = {name: (0, crc32(file.name.encode())) for name, (file, _) in files.items()}
        if self._progress.exists() and all(file.exists() for file in self._unfinished.values()):
            saved = json.loads(self._progress.read_text())
            self.read, self._written = saved["read"], {name: tuple(saved["written"][name]) for name in files}
        self._opened = {name: file.open("r+b" if self.read else "wb") for name, file in self._unfinished.items()}
        for name, file in self._opened.items():
            file.truncate(self._written[name][0])
            file.seek(self._written[name][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._opened.values():
            with suppress(OSError):  # of a full disk, which is the error already
                file.close()
        if kind is not None and (not self._progress.exists() or issubclass(kind, Exception)):
            for begun in (*self._unfinished.values(), self._progress):
                begun.unlink(missing_ok=True)

    def items(self, name: str) -> int:
        """Return how many items the file has by now."""
        return self._written[name][0] // self.files[name][1].itemsize

    def append(self, name: str, items: Array) -> None:
        piece = items.astype(str(self.files[name][1]).removeprefix("torch.")).tobytes()
        self._opened[name].write(piece)
        size, checksum = self._written[name]
        self._written[name] = size + len(piece), crc32(piece, checksum)

    def save(self, read: int) -> None:
        """Save the state to resume from: all that was written so far, of the first `read` pieces."""
        for file in self._opened.values():
            file.flush()
        self.read = read
        write_whole(self._progress, json.dumps({"read": read, "written": self._written}))

    def finish(self) -> None:
        """Give the files their final names."""
        for name, file in self._opened.items():
            file.write(_TRAILER.pack(self.items(name), self._written[name][1]))
            file.close()
        for name, unfinished in self._unfinished.items():
            unfinished.replace(self.files[name][0])
        self._progress.unlink(missing_ok=True)


def read_or_make(files: Files, make: Callable[[GrowingFiles], None]) -> list[Tensor]:
    """Return the contents of files in one folder, (N,) each, memory-mapped. Where one is missing or damaged, all are
    made, by one process while others wait; `make` gets them with what was saved before it was killed.

    Raises UserError where the folder can't be written, and whatever `make` raises.
    """
    if contents := _read(files):
        return contents
    first, _ = next(iter(files.values()))
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        lock, waited = FileLock(first.with_name(f"{first.name}.lock")), False
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print("waiting for another process that tokenises the same text ...", flush=True)
            lock.acquire()
            waited = True
        try:
            if not (waited and (contents := _read(files))):
                with GrowingFiles(files) as growing:
                    make(growing)
                    growing.finish()
                contents = _read(files)
        finally:
            with suppress(OSError):  # Windows, where it is open
                Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()
    except OSError as error:
        problem = f"data.cache_dir={first.parent}: can't be written: {error.strerror}; name another"
        raise UserError(problem) from error
    return contents


def _read(files: Files) -> list[Tensor]:
    """Return the contents of the files; empty where one is missing or damaged."""
    contents = [read_tokens(file, dtype) for file, dtype in files.values()]
    return [content for content in contents if content is not None] if None not in contents else []


def write_all(growing: GrowingFiles, encoded: Iterable[Encoded], total: int, unit: str) -> None:
    """Write pieces, from the first that is not written yet. total, unit: of what is read, for a bar with the rate and
    the time left, or a line where none is shown."""
    resuming = growing.read > 0
    bar: tqdm[None] = tqdm(total=total, desc="tokenising", unit=unit, unit_scale=True, leave=False, disable=None)
    if total > _MUCH and not sys.stderr.isatty():
        print(f"tokenising {total / 1e6:,.0f} M{unit}, once for this text and encoding ...", flush=True)
    with bar:
        for number, piece in enumerate(encoded, start=growing.read + 1):
            growing.append("ends", piece.ends + growing.items("tokens"))
            growing.append("tokens", piece.tokens)
            if piece.part_ends:
                growing.append("parts", np.array([growing.items("tokens")]))
            if resuming:  # the rate is of what is tokenised now
                resuming = False
                print(f"tokenising resumes after {piece.read / 1e6:,.0f} M{unit}", flush=True)
                bar.unpause()
                bar.initial = bar.n = piece.read
            bar.update(piece.read - bar.n)
            if number % _SAVE_EVERY == 0:
                growing.save(number)


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the function of each item in their order, computed on up to _PROCESSORS processors, a few items ahead.

    Raises UserError where a process that computes is killed.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    processors = min(available(), _PROCESSORS)
    ahead: deque[Future[Result]] = deque()
    pool, work = _workers(processors, function)
    with pool:
        try:
            with deaf_to_interrupts():  # of which the processes that start here will hear nothing
                ahead.append(pool.submit(work, first[0]))
            for item in chain(first[1:], items):
                ahead.append(pool.submit(work, item))
                if len(ahead) > 2 * processors:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool:
            raise UserError("a process that tokenised was killed (out of memory?); start again to resume") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _workers(number: int, function: Callable[[Any], Any]) -> tuple[Executor, Callable[[Any], Any]]:
    """Return a pool of processes, or of threads where processes can't be forked, and the function to submit to it.

    Two threads of tiktoken are 1.4 times as fast as one, two processes twice.
    """
    if sys.platform == "linux" and not multiprocessing.current_process().daemon:
        context = multiprocessing.get_context("fork")  # nothing is imported anew, and nothing pickled but the items
        return ProcessPoolExecutor(number, context, _start_work, (function,)), _work
    return ThreadPoolExecutor(number), function


_function: Callable[[Any], Any] | None = None  # of a process that does nothing else


def _start_work(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()


def _work(item: Any) -> Any:
    assert _function is not None
    return _function(item)
