"""Files of documents by their format: one column of text, whatever stands beside it."""

import csv
import json
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from poslab.data.text import open_text
from poslab.errors import SettingError, UserError, first_line, suggestion

_ROWS = 1000  # at a time


def document_texts(path: str, file: Path, kind: str, column: str) -> Iterator[str | None]:
    """Yield a column of one of the files at `path`; None where it is null, or a row doesn't have it.

    kind: json, csv, parquet or arrow. Raises SettingError for a file that is damaged, lacks the column or has something
    else than text there.
    """
    if not file.stat().st_size:
        raise SettingError("path", path, f"{file} is empty")
    try:
        yield from _READERS[kind](path, file, column)
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise SettingError("path", path, f"{file} is not UTF-8 (byte 0x{error.object[error.start]:02x})") from error
    except Exception as error:  # each format and each compression has errors of its own
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else first_line(error)
        raise SettingError("path", path, f"{file} can't be read, is it complete? {reason}") from error


def no_text(column: str, kind: str, where: str) -> SettingError:
    """Return the error of a column that holds something else."""
    return SettingError("column", column, f"holds {kind} in {where}, no text")


def no_column(path: str | Path, column: str, columns: Collection[str]) -> SettingError:
    """Return the error of a column that isn't there."""
    # Without a header, the first row is taken for one, whose texts may be long.
    named = [textwrap.shorten(name, 40, placeholder=" ...") for name in columns]
    return SettingError("column", column, f"{path} has no column {column}; {suggestion(column, named)}")


def _require_one(file: Path, column: str, names: Sequence[str]) -> None:
    """Raise SettingError where several columns have the name."""
    if (count := names.count(column)) > 1:
        raise SettingError("column", column, f"{file} has {count} columns of that name; rename the others")


# JSON


def _json_texts(path: str, file: Path, column: str) -> Iterator[str | None]:
    names: Collection[str] = ()
    has_column = False
    for where, document in _json_documents(file):
        if not isinstance(document, dict):
            raise SettingError("path", path, f"{where} of {file} is no JSON object, but {type(document).__name__}")
        names = names or document.keys()
        has_column |= column in document
        text = document.get(column)
        if not isinstance(text, str | None):
            raise no_text(column, type(text).__name__, f"{where} of {file}")
        yield text if text is None or text.isascii() else _whole_characters(text)
    if names and not has_column:
        raise no_column(file, column, names)


def _json_documents(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the documents of a file, each with its place: a line each, or the items of a list."""
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            where = f"line {number:,}"
            if line.lstrip()[0] == "[" or line.strip() == "{":  # one value in several lines
                documents = _parsed(line + lines.read(), where)
                for place, document in enumerate(documents if isinstance(documents, list) else [documents], 1):
                    yield f"item {place:,}", document
                return
            yield where, _parsed(line, where)


def _parsed(text: str, where: str) -> Any:
    try:
        # Python's int takes 4,300 digits at most, which another column may have.
        return json.loads(text, parse_int=float)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: {error.msg}") from error


def _whole_characters(text: str) -> str:
    """Replace halves of a character's surrogate pair, which JSON may have and no encoding of tokens has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# Delimited text

_SEPARATORS = ",;\t|"
# How quotation marks may be meant, the usual way first: a file is read by the first of these by which every row has as
# many fields as the header.
_QUOTING: dict[str, dict[str, Any]] = {
    "": {"strict": True},
    "a backslash before a quotation mark makes it part of the text": {"strict": True, "escapechar": "\\"},
    "quotation marks are read as text": {"quoting": csv.QUOTE_NONE},
}


def _delimited_texts(path: str, file: Path, column: str) -> Iterator[str | None]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # of a document, by default 131,072 characters
    dialect = _dialect(path, file, column)
    with open_text(file) as lines:
        rows = csv.reader(lines, **dialect)
        header = next(rows)
        place = header.index(column)
        for row in rows:
            if row:
                yield row[place]
            elif len(header) == 1:  # an empty line is an empty document
                yield ""


def _dialect(path: str, file: Path, column: str) -> dict[str, Any]:
    """Return how the csv module reads a file whose values are separated by what separates its header. Prints what is
    unusual: rows of several lines, quotation marks that are text. Raises SettingError where no way gives each row the
    fields of the header."""
    with open_text(file) as lines:
        header = lines.readline().partition("\r")[0]
    names = {separator: next(csv.reader([header], delimiter=separator), []) for separator in _SEPARATORS}
    possible = [separator for separator in _SEPARATORS if column in names[separator]]
    if not possible:
        raise no_column(path, column, max(names.values(), key=len))
    _require_one(file, column, names[possible[0]])
    problem = ""
    for separator in possible:
        for words, quoting in _QUOTING.items():
            dialect = {"delimiter": separator, **quoting}
            try:
                rows, spanning, first = _count_rows(file, column, dialect)
            except csv.Error as error:
                problem = problem or str(error)
                continue
            if words:
                print(f"data     {file}: {problem}, so {words}", flush=True)
            if spanning:
                joined = f"{spanning:,} of {rows:,} rows have line ends within quotation marks"
                print(f"data     {file}: {joined}, the first in line {first:,}", flush=True)
            return dialect
    advice = "a text with separators, line ends or quotation marks must be quoted, and its own quotation marks doubled"
    raise SettingError("path", path, f"{file}: {problem}; {advice}")


def _count_rows(file: Path, column: str, dialect: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many rows follow the header, how many of them span several lines, and the first line of the first of
    these. Raises csv.Error, with the line, for a quotation mark out of place, a header that lacks the column
    without its quotation marks, or a row with other fields than the header's."""
    count, spanning, first_spanning = 0, 0, 0
    line = 1  # in which the next row begins
    with open_text(file) as lines:
        rows = csv.reader(lines, **dialect)
        try:
            fields = len(header := next(rows))
            if column not in header:
                raise csv.Error(f"the header has no column {column}")
            line = rows.line_num + 1
            for row in rows:
                if row and len(row) != fields:
                    raise csv.Error(f"{len(row)} fields, where the header has {fields}")
                count += bool(row)
                if rows.line_num > line:
                    first_spanning = first_spanning or line
                    spanning += 1
                line = rows.line_num + 1
        except csv.Error as error:
            alone = "new-line character" in str(error)
            reason = "a carriage return that no line feed follows" if alone else str(error)
            raise csv.Error(f"line {line:,}: {reason}") from error
    return count, spanning, first_spanning


# Columns with types

_ARROW_FILE, _ARROW_END = b"ARROW1", b"\xff\xff\xff\xff" + bytes(4)


def _parquet_texts(path: str, file: Path, column: str) -> Iterator[str | None]:
    opened = import_module("pyarrow.parquet").ParquetFile(file)
    _require_text(file, column, opened.schema_arrow)
    for batch in opened.iter_batches(_ROWS, columns=[column]):
        yield from batch.column(column).to_pylist()


def _arrow_texts(path: str, file: Path, column: str) -> Iterator[str | None]:
    arrow = import_module("pyarrow")
    with arrow.memory_map(str(file)) as opened:
        try:
            batches = arrow.ipc.open_stream(opened)
            _require_text(file, column, batches.schema)
        except arrow.ArrowInvalid:
            reader = arrow.ipc.open_file(opened)
            _require_text(file, column, reader.schema)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        for batch in batches:
            texts = batch.column(column)
            texts.validate(full=True)
            yield from texts.to_pylist()
    require_end(file)


def require_end(file: Path) -> None:
    """Raise EOFError for a stream of Arrow that was cut between two batches, which its reader takes for a whole one."""
    with file.open("rb") as opened:
        is_file = opened.read(len(_ARROW_FILE)) == _ARROW_FILE  # which ends with a list of its batches
        opened.seek(-min(len(_ARROW_END), file.stat().st_size), os.SEEK_END)
        if not is_file and opened.read() != _ARROW_END:
            raise EOFError("it lacks the mark that ends a stream of Arrow")


def _require_text(file: Path, column: str, schema: Any) -> None:
    """Raise SettingError where the schema lacks the column, or has another type than text for it."""
    if column not in schema.names:
        raise no_column(file, column, schema.names)
    _require_one(file, column, schema.names)
    arrow, column_type = import_module("pyarrow"), schema.field(column).type
    values = column_type.value_type if arrow.types.is_dictionary(column_type) else column_type
    if values not in (arrow.string(), arrow.large_string(), arrow.string_view(), arrow.null()):
        raise no_text(column, str(column_type), str(file))


_READERS: dict[str, Callable[[str, Path, str], Iterator[str | None]]] = {
    "json": _json_texts,
    "csv": _delimited_texts,
    "parquet": _parquet_texts,
    "arrow": _arrow_texts,
}
