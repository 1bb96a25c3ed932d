"""Formats of corpora, which the end of a file's name tells."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from poslab.errors import SettingError


class Kind(Enum):
    """What a file holds, in words."""

    TEXT = "a text"
    DOCUMENTS = "documents"
    TOKENS = "tokens"


@dataclass(frozen=True)
class Format:
    kind: Kind
    library: str | None = None  # that reads it, of the extra `corpora`


_TEXT = Format(Kind.TEXT)
# In the order in which a folder is asked for them; files of any other name are texts.
FORMATS = {
    ".txt": _TEXT,
    ".jsonl": Format(Kind.DOCUMENTS),
    ".jsonl.gz": Format(Kind.DOCUMENTS),
    ".jsonl.zst": Format(Kind.DOCUMENTS, "zstandard"),
    ".parquet": Format(Kind.DOCUMENTS, "pyarrow"),
    ".arrow": Format(Kind.DOCUMENTS, "datasets"),  # of a folder that save_to_disk of Hugging Face's datasets wrote
    ".bin": Format(Kind.TOKENS),
}
_STATE, _PARTS = "state.json", "dataset_dict.json"  # in such folders, and in those of several


def suffix(file: Path) -> str:
    """The end of the name by which `FORMATS` knows the file; empty where it doesn't."""
    return max((ending for ending in FORMATS if file.name.lower().endswith(ending)), key=len, default="")


def kind_of(path: str, files: Sequence[Path], encoding: str) -> Kind:
    """What the files at `path` hold together. To the encoding "bytes" tokens of others are bytes like any.

    Raises SettingError where they hold different things, or need a library that isn't installed.
    """
    formats = {FORMATS.get(suffix(file), _TEXT) for file in files}
    kinds = {Kind.TEXT if form.kind is Kind.TOKENS and encoding == "bytes" else form.kind for form in formats}
    if len(kinds) > 1:
        raise SettingError("path", path, f"holds {' and '.join(sorted(kind.value for kind in kinds))}; name one kind")
    for library in sorted({form.library for form in formats if form.library}):
        if find_spec(library) is None:
            raise SettingError("path", path, f'needs {library}: python -m pip install "poslab[corpora]"')
    return kinds.pop()


def check_corpus(path: str, files: Sequence[Path], column: str, encoding: str) -> None:
    """Raises SettingError for files that can't be read as a corpus, or not with this column or encoding."""
    kind = kind_of(path, files, encoding)
    if kind is not Kind.DOCUMENTS and column != "text":
        raise SettingError("column", column, f"is of documents; {path} holds {kind.value}")
    if kind is Kind.TOKENS and encoding == "characters":
        raise SettingError("encoding", encoding, f"{path} holds tokens: name the encoding that made them, such as gpt2")


def files_of_dataset(folder: Path) -> list[Path]:
    """The files of a folder that save_to_disk wrote, in its order; empty for any other folder.

    Raises SettingError where it holds several data sets, or says of itself what is not so.
    """
    if (folder / _PARTS).is_file():
        parts = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{_STATE}"))) or "none"
        raise SettingError("path", folder, f"holds several data sets ({parts}); name one of these folders")
    if not (folder / _STATE).is_file():
        return []
    try:
        files = [folder / part["filename"] for part in json.loads((folder / _STATE).read_text())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError("path", folder, f"{_STATE} names no files of a data set") from error
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise SettingError("path", folder, f"{missing[0] if missing else 'a file'} of the data set is missing")
    return files
