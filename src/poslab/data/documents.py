"""Documents of any format but text files, read and tokenised by Hugging Face's datasets."""

import csv
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from poslab.config.corpora import chosen_parts, hugging_face, opened_repository
from poslab.data.text import Encoded
from poslab.data.tokenizer import Array, Encoding, encode, end_token
from poslab.errors import SettingError, UserError, first_line, suggestion
from poslab.processors import available

_END_OF_ARROW = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_ROWS = 1000  # of documents, which are worth another process
_PROCESSES = 32  # as fast as rows can be read; more would only take memory

Content = Sequence[Any]  # files, or data sets


def load_repository(path: str, name: str | None, split: str | None, cache_dir: Path) -> dict[str, Content]:
    """Return the parts of a data set on the Hub, or of a copy of one, as `chosen_parts` has them; split: which it is to
    be, by the rules of datasets (`train[:10%]`). Raises SettingError."""
    builder, _ = opened_repository(path, name, cache_dir)
    try:
        builder.download_and_prepare()
        if split is not None:
            return {"": [builder.as_dataset(split=split)]}
        return chosen_parts(path, {part: [dataset] for part, dataset in builder.as_dataset().items()}, None)
    except UserError:
        raise
    except ValueError as error:
        raise SettingError("split", split, first_line(error)) from error
    except Exception as error:
        raise SettingError("path", path, _reason(error)) from error


def tokenised_documents(
    path: str, kind: str, content: Content, column: str, tokenizer: Encoding, folder: Path
) -> Iterator[Encoded]:
    """Yield the tokens of documents, each tokenised alone, with the end-of-text token after it. One that is empty, or
    null, is left out. Raises SettingError for a file that is damaged, or lacks the column.

    folder: of what datasets keeps until all is tokenised, so that a process that was killed may go on.
    """
    try:
        readers = {"repository": lambda: content, "saved": partial(_saved, path, content)}
        read = readers.get(kind, partial(_converted, path, kind, content, column, folder))
        library = hugging_face()
        parts = [part.with_format(None) for part in read()]
        if not parts:
            raise SettingError("path", path, "the text is empty")
        dataset = library.concatenate_datasets(parts)
        if column not in dataset.column_names:
            raise _no_column(path, column, dataset.column_names)
        feature = dataset.features[column]
        if (found := getattr(feature, "dtype", type(feature).__name__)) not in ("string", "large_string", "null"):
            raise SettingError("column", column, f"holds {found} in {path}, no text")
        processes = min(available(), _PROCESSES, len(dataset) // _ROWS)
        try:
            mapped = dataset.map(
                partial(_encode, tokenizer, end_token(tokenizer)),
                batched=True,
                batch_size=100,
                input_columns=column,
                remove_columns=dataset.column_names,
                features=library.Features({"tokens": library.List(library.Value("uint32"))}),
                cache_file_name=str(folder / "tokens.arrow"),
                new_fingerprint=folder.stem,
                num_proc=processes if processes > 1 else None,
                desc="tokenising",
            )
        except UnicodeDecodeError as error:
            problem = f"{_named(path, content)} {_reason(error)}"
            raise SettingError("path", path, problem) from error
        for batch in mapped.with_format("arrow").iter(_ROWS):
            tokens = batch["tokens"].combine_chunks()
            yield Encoded(tokens.flatten().to_numpy(), np.cumsum(tokens.value_lengths().to_numpy()))
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _encode(tokenizer: Encoding, ending: Array, texts: Sequence[str | None]) -> dict[str, list[Array]]:
    return {"tokens": [np.concatenate([encode(tokenizer, text), ending]) for text in texts if text]}


def _saved(path: str, files: Sequence[Path]) -> list[Any]:
    """Return the data sets that save_to_disk wrote as these files, memory-mapped."""
    for file in files:
        _check_arrow(path, file)
    try:
        return [hugging_face().load_from_disk(str(folder)) for folder in dict.fromkeys(file.parent for file in files)]
    except Exception as error:
        raise SettingError("path", path, _reason(error)) from error


def _converted(path: str, kind: str, files: Sequence[Path], column: str, folder: Path) -> list[Any]:
    """Return the documents of files as datasets reads them. Raises SettingError, which names the file."""
    try:
        for file in files:
            if not file.stat().st_size:
                raise SettingError("path", path, f"{file} is empty")
            if kind == "arrow":
                _check_arrow(path, file)
        settings = _READ_WITH.get(kind, lambda *_: {})(path, files[0], column)
        data_files = {"train": [*map(str, files)]}
        loaded = hugging_face().load_dataset(kind, data_files=data_files, cache_dir=str(folder), **settings)
        return [*loaded.values()]  # none where there are no rows
    except UserError:
        raise
    except Exception as error:
        for file in files if len(files) > 1 else ():
            _converted(path, kind, [file], column, folder)  # which raises for the file that is damaged
        problem = f"{_named(path, files)} {_reason(error)}"
        raise SettingError("path", path, problem) from error


def _columns_of_csv(path: str, file: Path, column: str) -> dict[str, Any]:
    """Return how to read the column of text from a .csv, whose values are separated by what separates its header."""
    opener: Callable[..., Any] = import_module("fsspec").open
    with opener(str(file), "rt", compression="infer", encoding="utf-8-sig", newline="") as opened:
        header = opened.readline()
    found = {separator: next(csv.reader([header], delimiter=separator), []) for separator in ",;\t|"}
    for separator, columns in found.items():
        if column in columns:
            features = hugging_face().Features({column: hugging_face().Value("string")})
            return {"sep": separator, "usecols": [column], "features": features, "keep_default_na": False}
    raise _no_column(path, column, max(found.values(), key=len))


def _columns_of_parquet(path: str, file: Path, column: str) -> dict[str, Any]:
    columns = import_module("pyarrow.parquet").read_schema(file).names
    if column not in columns:
        raise _no_column(path, column, columns)
    return {"columns": [column]}


_READ_WITH: dict[str, Callable[[str, Path, str], dict[str, Any]]] = {
    "csv": _columns_of_csv,
    "parquet": _columns_of_parquet,
}


def _check_arrow(path: str, file: Path) -> None:
    """Raise SettingError for a file that lacks the mark of its end, which its reader doesn't notice."""
    with file.open("rb") as opened:
        content = opened.read(6), opened.seek(-min(8, file.stat().st_size), 2), opened.read()
    if content[0] != b"ARROW1" and content[2] != _END_OF_ARROW:
        raise SettingError("path", path, f"{file} has no mark of its end: it is damaged or not complete")


def _no_column(path: str, column: str, known: Sequence[str]) -> SettingError:
    return SettingError("column", column, f"{path} has no column {column}; {suggestion(column, known)}")


def _named(path: str, content: Content) -> str:
    return str(content[0]) if len(content) == 1 and isinstance(content[0], Path) else f"a file of {path}"


def _reason(error: BaseException) -> str:
    """Return what the library that datasets called has found, which is the cause of its own error."""
    while type(error).__module__.startswith("datasets") and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 (byte 0x{error.object[error.start]:02x})"
    return f"can't be read, is it complete? {first_line(error)}"  # type: ignore[arg-type]
