"""Texts, where they and their tokens are kept; and files that appear whole or not at all."""

import glob
import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from poslab.config.formats import FORMATS, Kind, files_of_dataset, suffix
from poslab.errors import SettingError

_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = (_PACKAGE / "bundled").is_dir()
BUNDLED = _PACKAGE / "bundled" if _IN_WHEEL else _PACKAGE.parents[1]  # holds configs/ and data/
BUNDLED_DATA = BUNDLED / "data"
CONFIGS = BUNDLED / "configs"
EXPORTED = "model.safetensors"  # in a folder that scripts/export.py has written, as transformers calls it
UNFINISHED = ".tmp"  # ends the name of a file that is being written


def find_files(path: str) -> list[Path]:
    """The file, the files of a folder at any depth, or what a glob matches, sorted. SettingError if none.

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
        seen = [file for file in known if not any(part[0] == "." for part in file.relative_to(given).parts)]
        matches = [file for file in known if file.match("*.txt")] or seen  # and no cache of tokens
        none = f"no .txt file in this folder, nor one of {', '.join([*FORMATS][1:])}"
    elif given.exists():
        raise SettingError("path", path, "is neither a file nor a folder")
    else:
        matches = [Path(match) for match in glob.iglob(str(given), recursive=True)]
        none = "no such file, folder or glob match"
    files = sorted(match for match in matches if match.is_file())
    if not files:
        raise SettingError("path", path, none)
    return files


def python_library() -> str:
    """A glob of the modules that come with the Python that is running. Names with an underscore before them are not
    among them: some hold what one machine's Python was built with. Packages may be missing where Python is divided."""
    return os.path.join(glob.escape(sysconfig.get_path("stdlib")), "[a-z]*.py")


def text_name(path: str) -> str:
    """What summaries call the text at `path`."""
    if path == python_library():
        return "python_library"
    files = find_files(path)
    if suffix(files[0]) == ".arrow" and files_of_dataset(files[0].parent) == files:
        return files[0].parent.name
    return files[0].name if len(files) == 1 else f"{len(files)} files of {path}"


def fingerprint(path: str) -> str:
    """sha256 of the text at `path`, as in `joined_sha256`. SettingError where a file can't be read.

    That of documents is another one than that of their files read as a text, which gives other tokens.
    """
    files = find_files(path)
    hashes = [_sha256(file, "path", path) for file in files]
    if any(suffix(file) and FORMATS[suffix(file)].kind is Kind.DOCUMENTS for file in files):
        hashes.insert(0, "documents")
    return joined_sha256(hashes)


def initial_files(folder: str) -> list[Path]:
    """The configuration and the weights of a GPT-2 as transformers writes it. SettingError where one is missing."""
    given = Path(folder)
    files = [given / "config.json", given / EXPORTED]
    if not files[1].exists() and (indices := sorted(given.glob("*.index.json"))):
        problem = f"has its weights in shards ({indices[0].name}), which aren't read; save_pretrained writes one file"
        raise SettingError("init_from", folder, f"{problem} where max_shard_size is larger than they are")
    for needed in (given, *files):
        if not needed.exists():
            raise SettingError("init_from", folder, "no such folder" if needed == given else f"has no {needed.name}")
    return files


def initial_sha256(folder: str) -> str:
    """sha256 of these files, as in `joined_sha256`. SettingError where one is missing or can't be read."""
    return joined_sha256([_sha256(file, "init_from", folder) for file in initial_files(folder)])


def _sha256(file: Path, option: str, given: str) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise SettingError(option, given, f"{file} can't be read: {error.strerror}") from error


def joined_sha256(hashes: Sequence[str]) -> str:
    """The sha256 of a text from those of its files: of one file, its own; of several, that of all theirs in hex."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def default_cache_dir() -> Path:
    """data/.cache, or a folder of the user's where there is no checkout, or it is read-only."""
    if not _IN_WHEEL and os.access(BUNDLED_DATA, os.W_OK):
        return BUNDLED_DATA / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poslab"


def require_writable(option: str, folder: Path) -> None:
    """Raises SettingError where nothing can be written into a folder that exists, or is to be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise SettingError(option, folder, f"can't be written: {error.strerror}; name another folder") from error


def safe_name(text: str, most: int = 80) -> str:
    """The text as part of a file's name, on every file system, cut to so many characters."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:most]


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes the file, text as UTF-8; it appears whole. Raises OSError, and what was there stays."""
    with appearing_whole(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def appearing_whole(path: Path, durable: bool = False, previous: Path | None = None) -> Iterator[Path]:
    """Gives a temporary name beside `path`. The file written there is renamed to `path` at the end, or removed where an
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
