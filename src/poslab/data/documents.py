"""Readers of documents: one document after the other, never a whole file in memory.

Each reader gives a document's text with the bytes of its file that were read by then. One that is empty, or null, is
left out. Half a surrogate pair, which JSON can write and no byte stands for, becomes U+FFFD, as tiktoken has it.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from poslab.config.files import suffix
from poslab.errors import SettingError, first_line, suggestion

_BLOCK = 1 << 20  # bytes read at a time
_ROWS = 64  # of a table at a time: documents may be long
_END_OF_ARROW = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_SURROGATE = re.compile("[\ud800-\udfff]")

Documents = Iterator[tuple[Any, int]]


def read_documents(path: str, file: Path, column: str) -> Iterator[tuple[str, int]]:
    """Yield the documents of one of the files at `path`: the text in this column, and the file's bytes read by then.

    Raises SettingError, which names the file and the line or row, for one that is damaged or lacks the column.
    """
    try:
        for number, (text, read) in enumerate(_READERS[suffix(file)](file, column), start=1):
            if not isinstance(text, str | None):
                raise ValueError(f"document {number}: column {column} holds {type(text).__name__}, no text")
            if text:
                yield _SURROGATE.sub("\ufffd", text), read
    except SettingError:
        raise
    except OSError as error:  # those of pyarrow have no strerror
        raise SettingError("path", path, f"{file} can't be read: {error.strerror or first_line(error)}") from error
    except (ValueError, EOFError, NotImplementedError) as error:  # as those of pyarrow are
        raise SettingError("path", path, f"{file}: {first_line(error)}") from error


def _lines_of_json(file: Path, column: str) -> Documents:
    number = 0
    with file.open("rb") as opened:
        try:
            for number, line in enumerate(_DECOMPRESSED[suffix(file)](opened), start=1):
                if line.strip():
                    yield _value(line, column, file, number), opened.tell()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"after line {number}: {error}; the file is damaged or not complete") from error


def _value(line: bytes, column: str, file: Path, number: int) -> Any:
    """Return the column's value in a line. Raises ValueError for no JSON object, SettingError for one without it."""
    try:
        values = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError(f"line {number}: is not UTF-8 (byte 0x{error.object[error.start]:02x})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number}: is no complete JSON ({error}); is the file complete?") from error
    if not isinstance(values, dict):
        raise ValueError(f"line {number}: is no JSON object, but {type(values).__name__}")
    if column not in values:
        raise _no_column(column, f"{file}, line {number}", list(values))
    return values[column]


def _no_column(column: str, where: str, known: list[str]) -> SettingError:
    return SettingError("column", column, f"{where} has no column {column}; {suggestion(column, known)}")


def _unzstd(opened: BinaryIO) -> Iterator[bytes]:
    """Yield lines, frame by frame: the library's reader doesn't tell the end of a file from that of a frame."""
    zstandard = import_module("zstandard")
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame, rest = None, b""
    try:
        while block := opened.read(_BLOCK // 16):  # all that a block becomes is in memory
            while block:
                frame = frame or decompressor.decompressobj()
                *lines, rest = (rest + frame.decompress(block)).split(b"\n")
                yield from lines
                block = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise EOFError(f"no Zstandard data ({error})") from error
    if frame is not None:
        raise EOFError("the Zstandard data ends within a frame")
    yield rest


# From an open file to its lines.
_DECOMPRESSED: dict[str, Callable[[BinaryIO], Iterable[bytes]]] = {
    ".jsonl": iter,
    ".jsonl.gz": gzip.open,
    ".jsonl.zst": _unzstd,
}


def _rows_of_parquet(file: Path, column: str) -> Documents:
    parquet = import_module("pyarrow.parquet")
    size = file.stat().st_size
    # In memory are pages, not whole row groups.
    with parquet.ParquetFile(file, buffer_size=_BLOCK, page_checksum_verification=True) as table:
        if column not in table.schema_arrow.names:
            raise _no_column(column, str(file), table.schema_arrow.names)
        batches = table.iter_batches(_ROWS, columns=[column])
        rows = (batch.column(0).to_pylist() for batch in batches)
        yield from _rows(rows, size / max(1, table.metadata.num_rows))


def _rows_of_dataset(file: Path, column: str) -> Documents:
    table = import_module("datasets").Dataset.from_file(str(file)).with_format(None)
    with file.open("rb") as opened:
        opened.seek(-len(_END_OF_ARROW), os.SEEK_END)
        if opened.read() != _END_OF_ARROW:  # a lack that its reader doesn't notice
            raise ValueError("has no mark of its end; the file is damaged or not complete")
    if column not in table.column_names:
        raise _no_column(column, str(file), table.column_names)
    batches = table.select_columns([column]).iter(_ROWS)
    yield from _rows((batch[column] for batch in batches), file.stat().st_size / max(1, len(table)))


def _rows(batches: Iterable[list[Any]], bytes_of_row: float) -> Documents:
    number = 0
    try:
        for number, value in enumerate(chain.from_iterable(batches), start=1):
            yield value, int(number * bytes_of_row)
    except (ValueError, OSError) as error:
        raise ValueError(f"after row {number}: {first_line(error)}; the file is damaged or not complete") from error


_READERS: dict[str, Callable[[Path, str], Documents]] = {
    ".jsonl": _lines_of_json,
    ".jsonl.gz": _lines_of_json,
    ".jsonl.zst": _lines_of_json,
    ".parquet": _rows_of_parquet,
    ".arrow": _rows_of_dataset,
}
