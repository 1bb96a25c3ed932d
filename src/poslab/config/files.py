"""Files: those that come with poslab, those of a corpus and their formats, and writing that is whole or not at all."""

import glob
import hashlib
import json
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from poslab.errors import SettingError

_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = (_PACKAGE / "bundled").is_dir()
BUNDLED = _PACKAGE / "bundled" if _IN_WHEEL else _PACKAGE.parents[1]  # holds configs/ and data/
BUNDLED_DATA = BUNDLED / "data"
CONFIGS = BUNDLED / "configs"
CLAIMS = CONFIGS / "claims"  # what comparisons are to show, and no settings of train
EXPORTED = "model.safetensors"  # in a folder that scripts/export.py has written, as transformers calls it
UNFINISHED = ".tmp"  # ends the name of a file that is being written


# Formats of corpora, known by the end of a file's name.


class Kind(Enum):
    """Content of a corpus file, in words."""

    TEXT = "a text"
    DOCUMENTS = "documents"
    TOKENS = "tokens"


# Files of any other name are texts.
FORMATS = {
    ".txt": Kind.TEXT,
    ".jsonl": Kind.DOCUMENTS,
    ".jsonl.gz": Kind.DOCUMENTS,
    ".jsonl.zst": Kind.DOCUMENTS,
    ".parquet": Kind.DOCUMENTS,
    ".arrow": Kind.DOCUMENTS,  # of a folder that save_to_disk of Hugging Face's datasets wrote
    ".bin": Kind.TOKENS,
}
_LIBRARIES = {".jsonl.zst": "zstandard", ".parquet": "pyarrow", ".arrow": "datasets"}  # of the extra `corpora`
_STATE, _PARTS = "state.json", "dataset_dict.json"  # in such folders, and in those of several


def suffix(file: Path) -> str:
    """Return the end of the name by which `FORMATS` knows the file; empty where it doesn't."""
    return next((ending for ending in FORMATS if file.name.lower().endswith(ending)), "")


def kind_of(path: str, files: Sequence[Path], encoding: str) -> Kind:
    """Return the kind that the files at `path` have in common. To the encoding "bytes" token files are bytes like any.

    Raises SettingError where kinds are mixed, or a library that reads them isn't installed.
    """
    endings = {suffix(file) for file in files}
    kinds = {FORMATS.get(ending, Kind.TEXT) for ending in endings}
    if encoding == "bytes":
        kinds = {Kind.TEXT if kind is Kind.TOKENS else kind for kind in kinds}
    if len(kinds) > 1:
        raise SettingError("path", path, f"holds {' and '.join(sorted(kind.value for kind in kinds))}; name one kind")
    for library in sorted(_LIBRARIES[ending] for ending in endings & _LIBRARIES.keys()):
        if find_spec(library) is None:
            raise SettingError("path", path, f'needs {library}: python -m pip install "poslab[corpora]"')
    return kinds.pop()


def check_corpus(path: str, files: Sequence[Path], column: str, encoding: str) -> None:
    """Raise SettingError for files that can't be read as a corpus, or not with this column or encoding."""
    kind = kind_of(path, files, encoding)
    if kind is not Kind.DOCUMENTS and column != "text":
        raise SettingError("column", column, f"is of documents; {path} holds {kind.value}")
    if kind is Kind.TOKENS and encoding == "characters":
        raise SettingError("encoding", encoding, f"{path} holds tokens: name the encoding that made them, such as gpt2")


# Files of a corpus


def find_files(path: str) -> list[Path]:
    """Return the file, the files of a folder at any depth, or the matches of a glob, sorted. SettingError if none.

    Of a folder the *.txt files count or, where there is none, those of other formats.
    """
    if not path:  # which would be the folder that one is in
        raise SettingError("path", "", "must name a file, a folder or a glob")
    given = Path(os.path.expanduser(path))
    if given.is_file():
        return [given]
    if given.is_dir():
        if files := files_of_dataset(given):
            return files
        known = [file for file in given.rglob("*") if suffix(file)]
        # No hidden ones: caches of tokens, copies that editors keep.
        seen = [file for file in known if not any(part[0] == "." for part in file.relative_to(given).parts)]
        matches = [file for file in seen if file.match("*.txt")] or seen
        formats = ", ".join([*FORMATS][1:])
        none = f"no .txt file in this folder, nor one of {formats}; a quoted glob takes others, '{given}/*.py'"
    else:
        matches = [Path(match) for match in glob.iglob(str(given), recursive=True)]
        none = "no such file, folder or glob match"
    files = sorted(match for match in matches if match.is_file())
    if not files:
        raise SettingError("path", path, none)
    return files


def files_of_dataset(folder: Path) -> list[Path]:
    """Return the files of a folder that save_to_disk wrote, in its order; empty for any other folder.

    Raises SettingError where it holds several data sets.
    """
    if (folder / _PARTS).is_file():
        parts = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{_STATE}"))) or "none"
        raise SettingError("path", folder, f"holds several data sets ({parts}); name one of these folders")
    if not (folder / _STATE).is_file():
        return []
    try:
        return [folder / part["filename"] for part in json.loads((folder / _STATE).read_text())["_data_files"]]
    except (ValueError, KeyError, TypeError):  # another program's state.json
        return []


def python_library() -> str:
    """Return a glob of the modules that come with the running Python. Names with an underscore before them are not
    among them: some hold what one machine's Python was built with. Packages may be missing where Python is divided."""
    return os.path.join(glob.escape(sysconfig.get_path("stdlib")), "[a-z]*.py")


def text_name(path: str) -> str:
    """Return the name of the text at `path` in summaries."""
    if path == python_library():
        return "python_library"
    files = find_files(path)
    if suffix(files[0]) == ".arrow" and files_of_dataset(files[0].parent) == files:
        return files[0].parent.name
    return files[0].name if len(files) == 1 else f"{len(files)} files of {path}"


def fingerprint(path: str) -> str:
    """Return the sha256 of the text at `path`, as in `joined_sha256`. SettingError where a file can't be read.

    Documents have another one than their files read as a text, which gives other tokens.
    """
    files = find_files(path)
    hashes = [file_sha256(file, "path", path) for file in files]
    if any(FORMATS.get(suffix(file)) is Kind.DOCUMENTS for file in files):
        hashes.insert(0, "documents")
    return joined_sha256(hashes)


def file_sha256(file: Path, option: str, given: str) -> str:
    """Return the sha256 of a file. Raises SettingError, for the option that gave it, where it can't be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise SettingError(option, given, f"{file} can't be read: {error.strerror}") from error


def joined_sha256(hashes: Sequence[str]) -> str:
    """Return one sha256 for several files: of one file, its own; of several, that of all theirs in hex."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


# Writing


def default_cache_dir() -> Path:
    """Return data/.cache, or a folder of the user's where there is no checkout, or it is read-only."""
    if not _IN_WHEEL and os.access(BUNDLED_DATA, os.W_OK):
        return BUNDLED_DATA / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poslab"


def require_writable(option: str, folder: Path) -> None:
    """Raise SettingError where nothing can be written into a folder that exists, or is to be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise SettingError(option, folder, f"can't be written: {error.strerror}; name another folder") from error


def safe_name(text: str, most: int = 80) -> str:
    """Return the text as part of a file's name, valid on every file system, cut to so many characters."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:most]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, whole or not at all. Raises OSError; then the file is as it was before."""
    with appearing_whole(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def appearing_whole(path: Path, durable: bool = False, previous: Path | None = None) -> Iterator[Path]:
    """Give a temporary name beside `path`. The file written there is renamed to `path` at the end, or removed where an
    error or a signal comes first.

    durable: the contents, and then the name, are on the disk when this ends (fsync): a power cut leaves no half file.
    previous: the name that the file which `path` was before gets.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        yield unfinished
        if durable:
            _sync(unfinished)
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(unfinished, path)
        if durable and os.name == "posix":  # elsewhere a folder can't be opened
            _sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
