"""Corpora of documents, or of tokens that others made, as two files: all tokens, and where each document ends in them.

A document is tokenised as it would be alone, and the end-of-text token, where the encoding has one, follows it. All
processors take part, since threads of tiktoken don't wait for each other; memory is needed for a few pieces of text.
"""

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tiktoken
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from tqdm import tqdm

from poslab.data.documents import read_documents
from poslab.data.growing_files import GrowingFiles
from poslab.data.token_files import read_tokens
from poslab.data.token_stream import read_tokens_of
from poslab.data.tokenizer import Encoding, end_of_text
from poslab.errors import SettingError, UserError
from poslab.settings.files import fingerprint
from poslab.settings.formats import Kind

_LAYOUT = "documents 1"  # part of every cache key; another number wherever the same corpus would give other files
_PIECE = 1 << 20  # characters at a time
_SAVE_EVERY = 16  # pieces
_MUCH = 50_000_000  # bytes of files that take a while

Array = np.ndarray[Any, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Source:
    """Files that hold a corpus, and the `fingerprint` of what they held when they were looked at."""

    path: str
    files: Sequence[Path]
    kind: Kind
    column: str
    sha256: str

    def in_cache(self, cache_dir: Path, tokenizer: Encoding, what: str) -> Path:
        content = f"{_LAYOUT} {self.kind.value} {self.column} {tokenizer.name} {self.sha256}"
        return cache_dir / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.{what}"


class Tokenised(NamedTuple):
    """All tokens of a corpus (N,), of `smallest_type`, and where its documents end in them: int64 (documents,)."""

    tokens: Tensor
    ends: Tensor


class _Piece(NamedTuple):
    """Some documents, and how many bytes of all files were read with them."""

    documents: list[str]
    place: int


class _Encoded(NamedTuple):
    """Tokens (N,), where documents end in them, and the piece's place."""

    tokens: Array
    ends: Array
    place: int


def smallest_type(vocabulary_size: int) -> torch.dtype:
    return torch.uint16 if vocabulary_size <= 1 << 16 else torch.int32


def tokenised(source: Source, tokenizer: Encoding, cache_dir: Path) -> Tokenised:
    """The tokens of a corpus, from the cache or made now. Another process that makes the same ones is waited for, and
    what one has begun that was killed is gone on with.

    Raises SettingError for files that can't be read, or change meanwhile, UserError where the cache can't be written.
    """
    dtype = smallest_type(tokenizer.n_vocab)
    types = {"tokens": dtype, "ends": torch.int64}
    files = {what: source.in_cache(cache_dir, tokenizer, what) for what in types}

    def cached() -> Tokenised | None:
        if not all(file.exists() for file in files.values()):
            return None
        tokens, ends = (read_tokens(files[what], types[what]) for what in types)
        return None if tokens is None or ends is None else Tokenised(tokens, ends)

    if found := cached():
        return found
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(files["tokens"].with_suffix(".lock")):
            if (found := cached()) is None:
                with GrowingFiles(files, {what: types[what].itemsize for what in types}) as growing:
                    _grow(growing, source, tokenizer, dtype)
                found = cached()
    except OSError as error:
        raise UserError(f"data.cache_dir={cache_dir}: can't be written: {error.strerror}; name another") from error
    if found is None:
        raise UserError(f"data.cache_dir={cache_dir}: {files['tokens'].name} can't be made anew; name another")
    return found


class _locked(FileLock):
    """A lock that leaves no file, and says where it has to be waited for."""

    def __enter__(self) -> "_locked":
        try:
            self.acquire(timeout=0)
        except Timeout:
            print("waiting for another process that tokenises the same text ...", flush=True)
            self.acquire()
        return self

    def __exit__(self, *error: Any) -> None:
        Path(self.lock_file).unlink(missing_ok=True)
        super().__exit__(*error)


def _grow(growing: GrowingFiles, source: Source, tokenizer: Encoding, dtype: torch.dtype) -> None:
    """Writes all that is not written yet."""
    progress = _Progress(source.files, going_on=growing.read > 0)
    try:
        for number, some in enumerate(_encoded(source, tokenizer, growing.read), start=growing.read + 1):
            ends = some.ends.astype(np.int64) + growing.items("tokens")
            growing.append("tokens", some.tokens.astype(str(dtype).removeprefix("torch.")).tobytes())
            growing.append("ends", ends.tobytes())
            progress.reach(some.place)
            if number % _SAVE_EVERY == 0:
                growing.save(number)
    finally:
        progress.bar.close()
    if not growing.items("tokens"):
        raise SettingError("path", source.path, "the text is empty")
    if fingerprint(source.path) != source.sha256:
        problem = "the text changed while it was read; start again once it is complete"
        raise SettingError("path", source.path, problem)
    growing.finish()


class _Progress:
    """A bar of the bytes read, with MB/s and the time left; a line of a long work where no bar is shown."""

    def __init__(self, files: Sequence[Path], going_on: bool) -> None:
        self.going_on = going_on
        total = sum(file.stat().st_size for file in files)
        self.bar: tqdm[None] = tqdm(
            total=total, desc="tokenising", unit="B", unit_scale=True, leave=False, disable=None
        )
        if total > _MUCH and not sys.stderr.isatty():
            print(f"tokenising {total / 1e6:,.0f} MB, once for this text and encoding ...", flush=True)

    def reach(self, place: int) -> None:
        if self.going_on:  # the rate is of what is tokenised now
            self.going_on = False
            self.bar.unpause()
            self.bar.initial = self.bar.n = place
            print(f"tokenising goes on after {place / 1e6:,.0f} MB", flush=True)
        self.bar.update(place - self.bar.n)


def _encoded(source: Source, tokenizer: Encoding, start: int) -> Iterator[_Encoded]:
    """All pieces from a number on."""
    if source.kind is Kind.TOKENS:
        return islice(_stream(source, tokenizer), start, None)
    return in_order(_encoder(tokenizer), islice(_pieces(source), start, None))


def _stream(source: Source, tokenizer: Encoding) -> Iterator[_Encoded]:
    """Tokens as they are in files, but that one end-of-text token follows each document, and none stands before the
    first."""
    ending = end_of_text(tokenizer)
    before, ended = 0, True  # bytes of the files before, and whether no document is under way
    for file in source.files:
        for tokens, place in read_tokens_of(source.path, file, tokenizer.n_vocab, tokenizer.name):
            is_end = tokens == ending
            repeated = is_end & np.concatenate(([ended], is_end[:-1]))
            ended = bool(is_end[-1])
            tokens = tokens[~repeated]
            yield _Encoded(tokens, np.flatnonzero(tokens == ending) + 1, before + place)
        before += file.stat().st_size
    if not ended:
        last = np.array([] if ending is None else [ending], np.int64)
        yield _Encoded(last, np.array([len(last)]), before)


def _pieces(source: Source) -> Iterator[_Piece]:
    """The documents of all files, as many at a time as have about _PIECE characters; the same ones each time."""
    before = 0
    for file in source.files:
        documents, length = [], 0
        for text, place in read_documents(source.path, file, source.column):
            documents.append(text)
            length += len(text)
            if length >= _PIECE:
                yield _Piece(documents, before + place)
                documents, length = [], 0
        before += file.stat().st_size
        if documents:
            yield _Piece(documents, before)


def _encoder(tokenizer: Encoding) -> Callable[[_Piece], _Encoded]:
    ending = end_of_text(tokenizer)
    last = np.array([] if ending is None else [ending], np.uint32)

    def encode(piece: _Piece) -> _Encoded:
        tokens = [np.concatenate([_ids(tokenizer, text), last]) for text in piece.documents]
        return _Encoded(np.concatenate(tokens), np.cumsum([len(some) for some in tokens]), piece.place)

    return encode


def _ids(tokenizer: Encoding, text: str) -> Array:
    """As encode_ordinary, uint32 (N,); of tiktoken without a list, which would keep other threads waiting."""
    if isinstance(tokenizer, tiktoken.Encoding):
        return tokenizer.encode_to_numpy(text, disallowed_special=())
    return np.array(tokenizer.encode_ordinary(text), np.uint32)


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The function of each item in their order, computed on all processors, a few items ahead."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ahead: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(processors) as pool:
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > 2 * processors:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for unneeded in ahead:
                unneeded.cancel()
