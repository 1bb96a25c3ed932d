"""Documents of any format but text files, read and tokenised by Hugging Face's datasets."""

import csv
import shutil
import textwrap
from collections.abc import Iterator, Sequence
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

_ROWS = 1000  # of documents, which are worth another process
_PROCESSES = 32  # as fast as rows can be read; more would only take memory


def load_repository(path: str, name: str | None, split: str | None, cache_dir: Path) -> dict[str, Sequence[Any]]:
    """Return the parts of a data set on the Hub, or of a copy of one, as `chosen_parts` has them; split: which it is to
    be, by the rules of datasets (`train[:10%]`). Raises SettingError."""
    builder, _ = opened_repository(path, name, cache_dir)
    try:
        builder.download_and_prepare()
        if split is not None:
            return {"": [builder.as_dataset(split=split)]}
        loaded = builder.as_dataset()
    except ValueError as error:
        raise SettingError("split", split, first_line(error)) from error
    except Exception as error:
        raise SettingError("path", path, _reason(error)) from error
    return chosen_parts(path, {part: [dataset] for part, dataset in loaded.items()}, None)


def tokenised_documents(
    path: str, content: Sequence[Any], tokenizer: Encoding, kind: str, column: str, folder: Path
) -> Iterator[Encoded]:
    """Yield the tokens of documents, each tokenised alone, with the end-of-text token after it. One that is empty, or
    null, is left out. Raises SettingError for a file that is damaged, or lacks the column.

    content: files, or data sets. folder: for what datasets keeps until all is tokenised: it goes on after a kill.
    """
    try:
        parts = content if kind == "repository" else _loaded(path, content, kind, column, folder)
        if not parts:
            raise SettingError("path", path, "the text is empty")
        dataset = hugging_face().concatenate_datasets([part.with_format(None) for part in parts])
        if column not in dataset.column_names:
            raise _no_column(path, column, dataset.column_names)
        feature = dataset.features[column]
        if (found := getattr(feature, "dtype", type(feature).__name__)) not in ("string", "large_string", "null"):
            raise SettingError("column", column, f"holds {found} in {path}, no text")
        tokenised = _mapped(dataset, path, column, tokenizer, folder)
        if left_out := len(dataset) - len(tokenised):
            print(f"data     {path}: {left_out:,} of {len(dataset):,} documents are empty, or null, and left out")
        for batch in tokenised.with_format("arrow").iter(_ROWS):
            tokens = batch["tokens"].combine_chunks()
            yield Encoded(tokens.flatten().to_numpy(), np.cumsum(tokens.value_lengths().to_numpy()))
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _mapped(dataset: Any, path: str, column: str, tokenizer: Encoding, folder: Path) -> Any:
    """Return the documents as lists of tokens, by as many processes as are worth it."""
    library = hugging_face()
    processes = min(available(), _PROCESSES, len(dataset) // _ROWS)
    try:
        return dataset.map(
            partial(_encode, tokenizer, end_token(tokenizer)),
            batched=True,
            batch_size=100,
            input_columns=column,
            remove_columns=dataset.column_names,
            features=library.Features({"tokens": library.List(library.Value("uint32"))}),
            cache_file_name=str(folder / "tokens.arrow"),
            new_fingerprint=folder.stem,  # which spares hashing the tokenizer
            num_proc=processes if processes > 1 else None,
            desc="tokenising",
        )
    except UnicodeDecodeError as error:  # datasets reads the bytes of a .jsonl as they are
        raise SettingError("path", path, f"a document {_reason(error)}") from error


def _encode(tokenizer: Encoding, ending: Array, texts: Sequence[str | None]) -> dict[str, list[Array]]:
    return {"tokens": [np.concatenate([encode(tokenizer, text), ending]) for text in texts if text]}


def _loaded(path: str, files: Sequence[Path], kind: str, column: str, folder: Path) -> list[Any]:
    """Return the data sets that files hold, memory-mapped. Raises SettingError, which names the file."""
    library = hugging_face()
    try:
        if kind == "saved":
            return [library.load_from_disk(str(saved)) for saved in dict.fromkeys(file.parent for file in files)]
        if empty := [file for file in files if not file.stat().st_size]:
            raise SettingError("path", path, f"{empty[0]} is empty")
        settings = _settings_of_csv(path, files[0], column) if kind == "csv" else {}
        data_files = {"train": [*map(str, files)]}
        return [*library.load_dataset(kind, data_files=data_files, cache_dir=str(folder), **settings).values()]
    except UserError:
        raise
    except Exception as error:
        for file in files if len(files) > 1 and kind != "saved" else ():
            _loaded(path, [file], kind, column, folder)  # which raises for the one that is damaged
        where = files[0] if len(files) == 1 else path
        raise SettingError("path", path, f"{where} {_reason(error)}") from error


def _settings_of_csv(path: str, file: Path, column: str) -> dict[str, Any]:
    """Return how to read a column of text from a .csv, whose values are separated by what separates its header."""
    with import_module("fsspec").open(str(file), "rt", compression="infer", encoding="utf-8-sig", newline="") as opened:
        header = opened.readline()
    found = {separator: next(csv.reader([header], delimiter=separator), []) for separator in ",;\t|"}
    for separator, columns in found.items():
        if column in columns:
            features = hugging_face().Features({column: hugging_face().Value("string")})
            return {"sep": separator, "usecols": [column], "features": features, "keep_default_na": False}
    raise _no_column(path, column, max(found.values(), key=len))


def _no_column(path: str, column: str, known: Sequence[str]) -> SettingError:
    # Without a header, the first row is taken for one, whose texts may be long.
    named = [textwrap.shorten(name, 40, placeholder=" ...") for name in known]
    return SettingError("column", column, f"{path} has no column {column}; {suggestion(column, named)}")


def _reason(error: BaseException) -> str:
    """Return what the library that datasets called has found, which is the cause of its own error."""
    while type(error).__module__.startswith("datasets") and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 (byte 0x{error.object[error.start]:02x})"
    return f"can't be read, is it complete? {first_line(error)}"  # type: ignore[arg-type]
