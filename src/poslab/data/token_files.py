"""Token files: one id after the other, all of one type, then how many there are and their checksum, which are verified
on opening. They are written piece by piece, and resume where they were saved last after whatever ended that.

The checksum begins with the file's name, which is the key of what it holds: under another name it is no valid file.
"""

import json
import os
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from zlib import crc32

import torch
from torch import Tensor

from poslab.config.files import write_whole

_TRAILER = struct.Struct("<QI")  # number of tokens, crc32 of name and bytes (0.2 s for 50 million on one core)
_BLOCK = 1 << 20  # bytes read at a time


def read_tokens(file: Path, dtype: torch.dtype) -> Tensor | None:
    """Return the tokens of a file, memory-mapped (N,); None where there is none, or, with a warning, a damaged one."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size - _TRAILER.size
            checksum = _checksum(opened, size, _of_name(file))
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
    there, unless what is on the disk is not what was saved. A signal leaves what was saved, an error nothing. Raises
    OSError where they can't be written.
    """

    def __init__(self, files: Mapping[str, Path], item_sizes: Mapping[str, int]) -> None:
        self.files = files
        self.item_sizes = item_sizes
        self.read = 0  # pieces of what they are made of
        first = next(iter(files.values()))
        self._unfinished = {name: file.with_name(f"{file.name}.unfinished") for name, file in files.items()}
        self._progress = first.with_name(f"{first.name}.progress")
        self._written = {name: (0, _of_name(file)) for name, file in files.items()}  # bytes and the checksum
        first.parent.mkdir(parents=True, exist_ok=True)
        self._go_on()
        self._opened = {name: file.open("r+b" if self.read else "wb") for name, file in self._unfinished.items()}
        for name, file in self._opened.items():
            file.truncate(self._written[name][0])
            file.seek(self._written[name][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._opened.values():
            with suppress(OSError):  # of a full disk, which is the error already
                file.close()
        if kind is not None and (not self._progress.exists() or issubclass(kind, Exception)):
            self._discard()

    def items(self, name: str) -> int:
        """Return how many items the file has by now."""
        return self._written[name][0] // self.item_sizes[name]

    def append(self, name: str, piece: bytes) -> None:
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
            try:
                unfinished.replace(self.files[name])
            except PermissionError:  # Windows: another run reads its own copy of it
                unfinished.unlink()
                if not self.files[name].exists():
                    raise
        self._progress.unlink(missing_ok=True)

    def _discard(self) -> None:
        for file in (*self._unfinished.values(), self._progress):
            file.unlink(missing_ok=True)

    def _go_on(self) -> None:
        """Resume from the saved state, where the files on the disk agree with it."""
        try:
            saved = json.loads(self._progress.read_text())
            written = {name: (int(saved["written"][name][0]), int(saved["written"][name][1])) for name in self.files}
            intact = all(self._begins_with(name, *written[name]) for name in written)
        except (OSError, ValueError, KeyError, TypeError, IndexError):  # nothing was saved, or not all of it
            return
        if intact:
            self.read, self._written = int(saved["read"]), written

    def _begins_with(self, name: str, size: int, checksum: int) -> bool:
        with self._unfinished[name].open("rb") as opened:
            return _checksum(opened, size, _of_name(self.files[name])) == checksum and opened.tell() == size


def _of_name(file: Path) -> int:
    """Return the checksum of a file before its first byte."""
    return crc32(file.name.encode())


def _checksum(opened: BinaryIO, size: int, checksum: int) -> int:
    """Continue a checksum with the next bytes of a file."""
    for left in range(size, 0, -_BLOCK):
        checksum = crc32(opened.read(min(left, _BLOCK)), checksum)
    return checksum
