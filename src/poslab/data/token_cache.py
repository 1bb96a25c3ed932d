"""Cache of token files: pieces of text are tokenised on all processors, once, and resumed after a kill.

No more pieces are in memory than are being tokenised.
"""

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tiktoken
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from tqdm import tqdm

from poslab.data.token_files import GrowingFiles, read_tokens
from poslab.data.tokenizer import Encoding, end_of_text
from poslab.errors import UserError
from poslab.signals import deaf_to_interrupts, end_with_parent

_SAVE_EVERY = 16  # pieces, of a megabyte or so
_PROCESSORS = 32  # as fast as one thread reads; more would only take memory
_MUCH = 20 << 20  # bytes or characters that take a while

Array = np.ndarray[Any, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")
Files = Mapping[str, tuple[Path, torch.dtype]]  # "tokens", and "ends" of documents where those are wanted


class Encoded(NamedTuple):
    """Tokens of a piece (N,), where documents end in them, how far the source has been read with it, and whether a
    part of the corpus ends there."""

    tokens: Array
    ends: Array
    read: int
    part_ends: bool = False


def encode(tokenizer: Encoding, text: str) -> Array:
    """Return the tokens of a text, as encode_ordinary does, uint32 (N,); of tiktoken without a list, which would keep
    other threads waiting."""
    if isinstance(tokenizer, tiktoken.Encoding):
        try:
            return tokenizer.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:  # half of a surrogate pair, which encode_ordinary replaces
            pass
    return np.array(tokenizer.encode_ordinary(text), np.uint32)


def end_token(tokenizer: Encoding) -> Array:
    """Return the end-of-text token, uint32 (1,); (0,) where the encoding has none."""
    ending = end_of_text(tokenizer)
    return np.array([] if ending is None else [ending], np.uint32)


def read_or_make(files: Files, make: Callable[[GrowingFiles], None]) -> list[Tensor]:
    """Return the contents of files in one folder, (N,) each, memory-mapped. Where one is missing or damaged, all are
    made, by one process while others wait; `make` gets them with what was saved before it was killed.

    Raises UserError where the folder can't be written, and whatever `make` raises.
    """
    if found := _read(files):
        return found
    first, _ = next(iter(files.values()))
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        with _Locked(first.with_name(f"{first.name}.lock")) as lock:
            if not (lock.waited and (found := _read(files))):
                paths = {what: file for what, (file, _) in files.items()}
                with GrowingFiles(paths, {what: dtype.itemsize for what, (_, dtype) in files.items()}) as growing:
                    make(growing)
                    growing.finish()
                found = _read(files)
    except OSError as error:
        problem = f"data.cache_dir={first.parent}: can't be written: {error.strerror}; name another"
        raise UserError(problem) from error
    if not found:
        raise UserError(f"data.cache_dir={first.parent}: {first.name} can't be made anew; name another")
    return found


def _read(files: Files) -> list[Tensor]:
    """Return the contents of the files; empty where one is missing or damaged."""
    if not all(file.exists() for file, _ in files.values()):
        return []
    contents = [read_tokens(file, dtype) for file, dtype in files.values()]
    return [content for content in contents if content is not None] if None not in contents else []


class _Locked(FileLock):
    """File lock that leaves no file, and prints a line where it has to be waited for."""

    waited = False

    def __enter__(self) -> "_Locked":
        try:
            self.acquire(timeout=0)
        except Timeout:
            print("waiting for another process that tokenises the same text ...", flush=True)
            self.waited = True
            self.acquire()
        return self

    def __exit__(self, *error: Any) -> None:
        with suppress(OSError):  # Windows, where it is open
            Path(self.lock_file).unlink(missing_ok=True)
        super().__exit__(*error)


def write_all(growing: GrowingFiles, encoded: Iterable[Encoded], dtype: torch.dtype, total: int, unit: str) -> None:
    """Write pieces, from the first that is not written yet, as tokens of a type. total, unit: of what is read, for a
    bar with the rate and the time left, or a line where none is shown."""
    resuming = growing.read > 0
    bar: tqdm[None] = tqdm(total=total, desc="tokenising", unit=unit, unit_scale=True, leave=False, disable=None)
    if total > _MUCH and not sys.stderr.isatty():
        print(f"tokenising {total / 1e6:,.0f} M{unit}, once for this text and encoding ...", flush=True)
    with bar:
        for number, piece in enumerate(encoded, start=growing.read + 1):
            ends = piece.ends.astype(np.int64) + growing.items("tokens")
            growing.append("tokens", piece.tokens.astype(str(dtype).removeprefix("torch.")).tobytes())
            if len(ends):
                growing.append("ends", ends.tobytes())
            if piece.part_ends:
                growing.append("parts", np.int64(growing.items("tokens")).tobytes())
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
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processors = min(available, _PROCESSORS)
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
