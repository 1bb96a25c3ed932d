"""Files: those that come with poslab, their hashes, and writing that is whole or not at all."""

import difflib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # begins a pointer, whatever the file's name


def refuse_lfs_pointer(file: Path) -> None:
    """Raise OSError where Git LFS has left a pointer in the place of a file that it has not fetched."""
    with file.open("rb") as opened:
        if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise OSError("Git LFS has left a pointer in its place; `git lfs pull` fetches the file")


def file_sha256(file: Path, option: str, value: str) -> str:
    """Return the sha256 of a file. Raises SettingError, for the option that gave it, where it can't be read."""
    try:
        refuse_lfs_pointer(file)
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError) as error:  # ValueError: of a name that no system takes
        reason = getattr(error, "strerror", None) or error
        raise SettingError(option, value, f"{file} can't be read: {reason}") from error


def joined_sha256(hashes: Sequence[str]) -> str:
    """Return one sha256 for several files: of one file, its own; of several, that of all theirs in hex."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def missing(path: str | Path, problem: str) -> str:
    """Return the problem of a path that isn't there, or is nothing of its kind, with the path that is meant where that
    is clear: a run by its name alone, or a name spelled like it in the same folder. Numbers tell runs apart, so they
    must be equal."""
    wanted = Path(os.path.expanduser(path))
    try:
        if wanted.name and (run := wanted.parent / "runs" / wanted.name).exists():
            return f"{problem}; did you mean {run}?"
        beside = os.listdir(wanted.parent) if wanted.parent.is_dir() else []
    except OSError:  # of a folder that may not be read
        return problem
    numbers = re.findall(r"\d+", wanted.name)
    alike = [name for name in beside if re.findall(r"\d+", name) == numbers and name != wanted.name]
    near = difflib.get_close_matches(wanted.name, alike, n=1, cutoff=0.8)
    return f"{problem}; did you mean {wanted.with_name(near[0])}?" if near else problem


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
