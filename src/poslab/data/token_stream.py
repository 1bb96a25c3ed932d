"""Readers of token files that other trainers wrote: nanoGPT's (uint16, nothing else) and llm.c's.

llm.c begins with 256 int32: a magic number, a version and the number of tokens; uint16 for GPT-2, uint32 for Llama 3
(dev/data/data_common.py there). Several files are one stream: llm.c cuts documents between them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from poslab.data.pieces import Encoded, Source
from poslab.data.tokenizer import Array, Encoding, end_of_text, end_token
from poslab.errors import SettingError

_HEADER = np.dtype("<i4"), 256
_UINT16: np.dtype[Any] = np.dtype("<u2")
_OF_MAGIC = {20240520: _UINT16, 20240801: np.dtype("<u4")}
_TOKENS = 1 << 20  # at a time
_FEW = 16  # of which every other one may be small by chance


def read_token_files(source: Source, tokenizer: Encoding) -> Iterator[Encoded]:
    """Yield the tokens of all files as they are, but that one end-of-text token follows each document, and none stands
    before the first. Raises SettingError as `read_tokens_of` does."""
    ending = end_of_text(tokenizer)
    before, ended = 0, True  # bytes of the files before, and whether no document is under way
    for file in source.files:
        for tokens, read in read_tokens_of(source.path, file, tokenizer.n_vocab, tokenizer.name):
            is_end = tokens == ending
            repeated = is_end & np.concatenate(([ended], is_end[:-1]))
            ended = bool(is_end[-1])
            tokens = tokens[~repeated]
            yield Encoded(tokens, np.flatnonzero(tokens == ending) + 1, before + read)
        before += file.stat().st_size
    if not ended:
        last = end_token(tokenizer)
        yield Encoded(last, np.array([len(last)]), before)


def read_tokens_of(path: str, file: Path, vocabulary_size: int, encoding: str) -> Iterator[tuple[Array, int]]:
    """Yield the tokens of one of the files at `path`, in pieces (N,), and the bytes of the file read so far.

    Raises SettingError for a file that is not complete, or has ids that the encoding doesn't; and where nanoGPT's would
    be uint16, but every other number is no more than the upper half of a wider one.
    """
    try:
        with file.open("rb") as opened:
            start, dtype = _start(opened, file.stat().st_size)
            opened.seek(start)
            number = 0
            while block := opened.read(_TOKENS * dtype.itemsize):
                tokens = np.frombuffer(block, dtype)
                most = (vocabulary_size - 1) >> 16
                if start == number == 0 and len(tokens) >= _FEW and tokens[1::2].max() <= most:
                    halves = f"at most {most}" if most else "0"
                    what = f"seems to hold tokens of 32 or 64 bits, as every other number of 16 bits is {halves}"
                    raise ValueError(f"{what}; without llm.c's header it must be uint16, nothing else")
                if (beyond := (tokens >= vocabulary_size)).any():
                    index = int(beyond.argmax())
                    known = f"{encoding} has {vocabulary_size:,}: is data.encoding the one that made it?"
                    raise ValueError(f"has the token {tokens[index]:,} at position {number + index:,}; {known}")
                yield tokens, start + (number + len(tokens)) * dtype.itemsize
                number += len(tokens)
    except OSError as error:
        raise SettingError("path", path, f"{file} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingError("path", path, f"{file} {error}") from error


def _start(opened: BinaryIO, size: int) -> tuple[int, "np.dtype[Any]"]:
    """Return the offset of the first token in bytes, and the type of all. Raises ValueError for half a file."""
    kind, length = _HEADER
    header = np.frombuffer(opened.read(kind.itemsize * length), kind) if size >= kind.itemsize * length else None
    start, dtype = 0, _UINT16
    if header is not None and int(header[0]) in _OF_MAGIC:
        start, dtype = header.nbytes, _OF_MAGIC[int(header[0])]
        there = (size - start) // dtype.itemsize
        if there != header[2]:
            raise ValueError(f"is not complete: of {header[2]:,} tokens it has {there:,}")
    if (size - start) % dtype.itemsize:
        raise ValueError(f"ends within a token of {dtype.itemsize} bytes: it is not complete, or holds something else")
    return start, dtype
