"""Documents of any format but text files, tokenised: of files, of data sets that Hugging Face's datasets reads."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from poslab.config.corpora import chosen_splits
from poslab.config.hugging_face import hugging_face, opened_repository
from poslab.data.document_files import document_texts, no_column, no_text, require_end
from poslab.data.text import Encoded, encoded_documents
from poslab.data.tokenizer import Encoding
from poslab.errors import SettingError, first_line

_ROWS = 1000  # at a time


def load_repository(path: str, name: str | None, split: str | None, cache_dir: Path) -> dict[str, Sequence[Any]]:
    """Return the splits of a data set on the Hub, or of a copy, as `chosen_splits` has them; split: which it is to
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
    return chosen_splits(path, {part: [dataset] for part, dataset in loaded.items()}, None)


def tokenised_documents(
    path: str, content: Sequence[Any], tokenizer: Encoding, kind: str, column: str
) -> Iterator[Encoded]:
    """Yield the tokens of documents, each tokenised alone, with the end-of-text token after it; those that are empty or
    null are left out. content: files, or data sets. Raises SettingError for a damaged file, or one without the column.
    """
    if kind == "saved":
        content = [_loaded(path, content, folder) for folder in dict.fromkeys(file.parent for file in content)]
    count = left_out = 0

    def documents() -> Iterator[str]:
        nonlocal count, left_out
        for part in content:
            is_file = isinstance(part, Path)
            for text in document_texts(path, part, kind, column) if is_file else _column(path, part, column):
                count += 1
                if text:
                    yield text
                else:
                    left_out += 1

    yield from encoded_documents(documents(), tokenizer)
    if left_out:
        print(f"data     {path}: {left_out:,} of {count:,} documents are empty, or null, and left out", flush=True)


def _loaded(path: str, files: Sequence[Path], folder: Path) -> Any:
    """Return the data set whose files save_to_disk wrote into the folder, memory-mapped."""
    try:
        for file in files:
            if file.parent == folder:
                require_end(file)
        return hugging_face().load_from_disk(str(folder))
    except Exception as error:
        raise SettingError("path", path, f"{folder} {_reason(error)}") from error


def _column(path: str, dataset: Any, column: str) -> Iterator[str | None]:
    """Yield the column of a data set. Raises SettingError where it has none, or no text there."""
    if column not in dataset.column_names:
        raise no_column(path, column, dataset.column_names)
    feature = dataset.features[column]
    if (dtype := getattr(feature, "dtype", type(feature).__name__)) not in ("string", "large_string", "null"):
        raise no_text(column, dtype, path)
    for batch in dataset.select_columns([column]).with_format(None).iter(_ROWS):
        yield from batch[column]


def _reason(error: BaseException) -> str:
    """Return what the library that datasets called has found, which is the cause of its own error."""
    while type(error).__module__.startswith("datasets") and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 (byte 0x{error.object[error.start]:02x})"
    return f"can't be read, is it complete? {first_line(error)}"  # type: ignore[arg-type]
