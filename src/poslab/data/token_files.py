"""Files of token ids: int32 each, then how many there are and their checksum, which are verified on opening."""

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

_TOKEN_BYTES = 4
_TRAILER = struct.Struct("<QI")  # number of tokens, crc32 of their bytes (0.2 s for 50 million on one core)
_BLOCK = 1 << 20  # bytes read at a time


def read_tokens(file: Path) -> Tensor | None:
    """The tokens of a file, memory-mapped, int32 (N,); None where there is none, or it is damaged, which is said."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size - _TRAILER.size
            checksum = 0
            for left in range(size, 0, -_BLOCK):
                checksum = crc32(opened.read(min(left, _BLOCK)), checksum)
            intact = size >= 0 and opened.read() == _TRAILER.pack(size // _TOKEN_BYTES, checksum)
    except OSError:  # there is none yet, or no folder for it
        return None
    if not intact:
        print(f"warning: {file} is damaged; it is made anew from the text", file=sys.stderr)
        return None
    if size == 0:
        return torch.empty(0, dtype=torch.int32)
    return torch.from_file(str(file), shared=False, size=size // _TOKEN_BYTES, dtype=torch.int32)


def write_tokens(file: Path, pieces: Iterable[bytes]) -> None:
    """Writes int32 tokens, given as bytes, to a file that appears whole or not at all.

    Raises UserError where the folder can't be written, and whatever `pieces` raises.
    """
    size = checksum = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with appearing_whole(file) as unfinished, unfinished.open("wb") as opened:
            for piece in pieces:
                opened.write(piece)
                size, checksum = size + len(piece), crc32(piece, checksum)
            opened.write(_TRAILER.pack(size // _TOKEN_BYTES, checksum))
    except OSError as error:
        if not (isinstance(error, PermissionError) and file.exists()):  # Windows: another run reads its own copy of it
            problem = f"data.cache_dir={file.parent}: can't be written: {error.strerror}; name another"
            raise UserError(problem) from error
