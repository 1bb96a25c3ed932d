"""Files of token ids: one after the other, all of one type, then how many there are and their checksum, which are
verified on opening."""

import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from poslab.errors import UserError
from poslab.settings.files import appearing_whole

_TRAILER = struct.Struct("<QI")  # number of tokens, crc32 of their bytes (0.2 s for 50 million on one core)
_BLOCK = 1 << 20  # bytes read at a time


def trailer(count: int, checksum: int) -> bytes:
    """What stands at the end of a file of so many tokens."""
    return _TRAILER.pack(count, checksum)


def read_tokens(file: Path, dtype: torch.dtype = torch.int32) -> Tensor | None:
    """The tokens of a file, memory-mapped (N,); None where there is none, or it is damaged, which is said."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size - _TRAILER.size
            checksum = 0
            for left in range(size, 0, -_BLOCK):
                checksum = crc32(opened.read(min(left, _BLOCK)), checksum)
            intact = size >= 0 and opened.read() == trailer(size // dtype.itemsize, checksum)
    except OSError:  # there is none yet, or no folder for it
        return None
    if not intact:
        print(f"warning: {file} is damaged; it is made anew from the text", file=sys.stderr)
        return None
    if size == 0:
        return torch.empty(0, dtype=dtype)
    return torch.from_file(str(file), shared=False, size=size // dtype.itemsize, dtype=dtype)


def write_tokens(file: Path, pieces: Iterable[bytes], dtype: torch.dtype = torch.int32) -> None:
    """Writes tokens of a type, given as bytes, to a file that appears whole or not at all.

    Raises UserError where the folder can't be written, and whatever `pieces` raises.
    """
    size = checksum = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with appearing_whole(file) as unfinished, unfinished.open("wb") as opened:
            for piece in pieces:
                opened.write(piece)
                size, checksum = size + len(piece), crc32(piece, checksum)
            opened.write(trailer(size // dtype.itemsize, checksum))
    except OSError as error:
        if not (isinstance(error, PermissionError) and file.exists()):  # Windows: another run reads its own copy of it
            problem = f"data.cache_dir={file.parent}: can't be written: {error.strerror}; name another"
            raise UserError(problem) from error
