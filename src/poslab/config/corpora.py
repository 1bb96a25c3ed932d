"""Files of a corpus: where they lie, what format they have, which splits they are, and the hash of their contents."""

import fnmatch
import glob
import hashlib
import json
import os
import re
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from poslab.config.files import file_sha256, joined_sha256, missing
from poslab.config.hugging_face import HUB, descriptions, is_repository, opened_repository
from poslab.errors import SettingError, suggestion

_JSON_LINES = ("jsonl", "jl", "jsonlines", "ndjson", "ldjson")
_KNOWN = "|".join(("txt", "json", *_JSON_LINES, "csv", "tsv", "parquet", "arrow", "bin"))
_ENDING = re.compile(rf"\.({_KNOWN})(?:\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_FORMATS = {"tsv": "csv"} | dict.fromkeys(_JSON_LINES, "json")  # of endings that are not called as their format
_ABOUT = ("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")  # no data
_STATE, _DICT = "state.json", "dataset_dict.json"  # in a folder that save_to_disk wrote, and in one of several splits


# Words that name a split, and what may stand beside them, by the rules of Hugging Face's datasets.
_SPLITS = {
    "train": "train|training",
    "validation": "validation|valid|val|dev",
    "test": "test|testing|eval|evaluation",
}
_APART = "[-._ 0-9]"

FilesBySplit = dict[str | None, list[Path]]


def format_of(file: Path) -> str:
    """Return txt, bin (token ids), json, csv, parquet or arrow, by the end of the name; any other file is a txt."""
    match = _ENDING.search(file.name)
    ending = match[1].lower() if match else "txt"
    return _FORMATS.get(ending, ending)


def compression_of(file: Path) -> str:
    """Return gz, bz2, xz or zst; empty for a file that isn't compressed."""
    match = _ENDING.search(file.name)
    return (match[2] or "").lower() if match else ""


def corpus_format(path: str, encoding: str) -> str:
    """Return the format that the files at `path` have in common: of `format_of`, or `saved`, a folder that save_to_disk
    of Hugging Face's datasets wrote, or `repository`, a data set on the Hub or a copy of one with its README.md.

    To the encoding "bytes" a .bin is a txt. Raises SettingError where formats are mixed, or none is there.
    """
    folder = Path(os.path.expanduser(path))
    if path.startswith(HUB) or is_repository(folder):
        return "repository"
    files = find_files(path)
    formats = {format_of(file) for file in files}
    if len(formats) > 1:
        raise SettingError("path", path, f"holds {' and '.join(sorted(formats))} files; name one kind with a glob")
    if folder.is_dir() and _saved_splits(folder):
        return "saved"
    (kind,) = formats
    if kind in ("parquet", "arrow", "bin") and any(map(compression_of, files)):
        raise SettingError("path", path, f"a compressed .{kind} can't be read: unpack it first")
    return "txt" if (kind, encoding) == ("bin", "bytes") else kind


def check_corpus(path: str, encoding: str, **settings: str | None) -> None:
    """Raise SettingError for files that can't be read as a corpus, or not with this encoding or these settings: column,
    dtype, document_separator and name, each None or "text" where it isn't given."""
    kind = corpus_format(path, encoding)
    documents = kind not in ("txt", "bin")
    allowed = {"column": documents, "dtype": kind == "bin", "document_separator": kind == "txt"}
    of = {"column": "documents", "dtype": ".bin files", "document_separator": "a .txt", "name": "data sets on the Hub"}
    for option, value in settings.items():
        if value not in (None, "text") and not allowed.get(option, kind == "repository"):
            raise SettingError(option, value, f"is for {of[option]}; {path} holds {kind}")
    for file in find_files(path) if kind == "bin" else ():
        refuse_own_characters(path, file)
    if kind == "bin" and encoding == "characters":
        raise SettingError("encoding", encoding, f"{path} holds tokens: name the encoding that made them, such as gpt2")
    compressed = {compression_of(file) for file in ([] if path.startswith(HUB) else find_files(path))}
    for library, needed in {"datasets": documents, "zstandard": "zst" in compressed}.items():
        if needed and find_spec(library) is None:
            raise SettingError("path", path, f'needs {library}: python -m pip install "poslab[corpora]"')


def refuse_own_characters(path: str, file: Path) -> None:
    """Raise SettingError for a .bin with a meta.pkl beside it: nanoGPT's ids of characters, whose names stand there. It
    is not read, because a pickle can run any code."""
    if file.with_name("meta.pkl").exists():
        text = file.with_name("input.txt")
        named = f"name its text, {text}," if text.exists() else "name its text"
        problem = f"{file} has ids of its own characters, listed in meta.pkl, and no encoding's tokens"
        raise SettingError("path", path, f"{problem}: {named} with data.encoding=characters")


def find_files(path: str) -> list[Path]:
    """Return the file, the files of a folder at any depth, or the matches of a glob, sorted. SettingError if none.

    Of a folder the text files count or, where they are more, those of other formats.
    """
    if not path:  # which would be the folder that one is in
        raise SettingError("path", "", "must name a file, a folder or a glob")
    place = Path(os.path.expanduser(path))
    if place.is_file():
        return [place]
    if place.is_dir():
        if saved := _saved_splits(place):
            return [file for files in saved.values() for file in files]
        data_files = _data_files(place)
        texts = [file for file in data_files if format_of(file) == "txt"]
        others = [file for file in data_files if format_of(file) not in ("txt", "bin")]
        matches = data_files
        if texts:
            matches = texts if len(texts) >= len(others) else others
        none = f"no .txt, .jsonl, .parquet or the like in this folder; a quoted glob takes others, '{place}/*.py'"
    else:
        matches = [Path(match) for match in glob.iglob(str(place), recursive=True)]
        none = missing(place, "no such file, folder or glob match")
    files = sorted(file for file in matches if file.is_file() and not _is_no_data(file))
    if not files:
        raise SettingError("path", path, none)
    return files


def _data_files(folder: Path) -> list[Path]:
    """Return the files in the folder whose format is known, but hidden ones: caches, and what editors keep."""
    data_files = [file for file in sorted(folder.rglob("*")) if _ENDING.search(file.name) and not _is_no_data(file)]
    return [file for file in data_files if not any(part[0] == "." for part in file.relative_to(folder).parts)]


def _is_no_data(file: Path) -> bool:
    """Return whether Hugging Face's datasets made the file to describe data, or as a copy of what it computed."""
    return file.name in _ABOUT or fnmatch.fnmatch(file.name, "cache-*.arrow")


def _saved_splits(folder: Path) -> FilesBySplit:
    """Return the files of a folder that save_to_disk wrote, by the names of splits; empty for any other folder."""
    try:
        if (folder / _DICT).is_file():
            splits = json.loads((folder / _DICT).read_text())["splits"]
            return {split: _saved_splits(folder / split)[None] for split in splits}
        if (folder / _STATE).is_file():
            files = json.loads((folder / _STATE).read_text())["_data_files"]
            return {None: [folder / file["filename"] for file in files]}
    except (ValueError, KeyError, TypeError, RecursionError, OSError):  # of another program, or without end
        pass
    return {}


def split_of(name: str) -> str | None:
    """Return the split that a word in the name of a file or folder names: train, validation, test or None."""
    for split in ("test", "validation", "train"):  # a file whose name has two words is held out
        if re.search(rf"(?:^|{_APART})(?:{_SPLITS[split]})(?:{_APART}|$)", name, re.IGNORECASE):
            return split
    return None


def files_by_split(path: str) -> FilesBySplit:
    """Return the files at `path` by the splits that their folders name, or else their own names; of a saved data set by
    its own. None: files that name none. Files that are all of one split, or of none, are one part, None."""
    place, files = Path(os.path.expanduser(path)), find_files(path)
    if place.is_dir() and (saved := _saved_splits(place)):
        return saved
    base = place if place.is_dir() else Path(os.path.commonpath([file.parent for file in files]))
    by_folder = [next(filter(None, map(split_of, file.relative_to(base).parts[:-1])), None) for file in files]
    splits = by_folder if any(by_folder) else [split_of(file.name) for file in files]
    if len({*splits}) == 1:
        return {None: files}
    order = [split for split in (*_SPLITS, None) if split in splits]
    return {name: [file for file, split in zip(files, splits, strict=True) if split == name] for name in order}


def chosen_splits(path: str, splits: Mapping[str | None, Any], split: str | None) -> dict[str, Any]:
    """Return what each part of a corpus consists of, by `train`, `validation` and `test`, or all by `` where it is yet
    to be cut: a single part, or the one that data.split names; `all` joins all of them.

    splits: by the names of splits, lists. Prints what is left out. Raises SettingError where none is to train on.
    """
    names = [name for name in splits if name is not None]
    if split == "all":
        return {"": [item for items in splits.values() for item in items]}
    if split is not None:
        if split not in names:
            raise SettingError("split", split, f"{path} has no such split; {suggestion(split, [*names, 'all'])}")
        return {"": splits[split]}
    folder, own = Path(os.path.expanduser(path)), {"": next(iter(splits))}
    if len(splits) > 1:
        own = {part: name for part, words in _SPLITS.items() for name in names if re.fullmatch(words, name)}
        if "train" not in own or (None in splits and not folder.is_dir()):
            some = f"splits ({', '.join(names)}){' and other files' if None in splits else ''}"
            problem = f"{path} has {some}, so it isn't clear what trains; name one, or all to read them as one"
            raise SettingError("split", None, problem)
    chosen = {part: splits[name] for part, name in own.items()}
    left = [name for name in names if name not in own.values()]
    files = {item for items in chosen.values() for item in items if isinstance(item, Path)}
    if files and folder.is_dir():
        left = [str(file.relative_to(folder)) for file in _data_files(folder) if file not in files]
    if left:
        print(f"data     of {path} is left out: {', '.join(left[:5])}{' ...' if len(left) > 5 else ''}", flush=True)
    return chosen


def python_library() -> str:
    """Return a glob of the modules that come with the running Python. Names with an underscore before them are not
    among them: some hold what one machine's Python was built with. Packages may be missing where Python is divided."""
    return os.path.join(glob.escape(sysconfig.get_path("stdlib")), "[a-z]*.py")


def text_name(path: str) -> str:
    """Return the name of the text at `path` in summaries."""
    if path == python_library():
        return "python_library"
    if path.startswith(HUB):
        return path.removeprefix(HUB)
    folder = Path(os.path.expanduser(path))
    if folder.is_dir() and (_saved_splits(folder) or is_repository(folder)):
        return folder.resolve().name
    files = find_files(path)
    return files[0].name if len(files) == 1 else f"{len(files)} files of {path}"


def absolute(path: str) -> str:
    """Return the path of a corpus as it is to be recorded, since a run may go on in another folder."""
    return path if path.startswith(HUB) else os.path.abspath(os.path.expanduser(path))


def fingerprint(path: str, name: str | None = None) -> str:
    """Return the sha256 of the contents at `path`, wherever they lie: of a single .txt its own, of other files that of
    their hashes and splits, of a data set on the Hub that of its commit. Raises SettingError where one can't be read.

    Documents have another one than their files read as a text, which gives other tokens; copies of a data set of the
    Hub one with what their README.md says of them.
    """
    if path.startswith(HUB):
        commit = opened_repository(path, name)[1]
        return hashlib.sha256(f"{path} {name or ''} {commit}".encode()).hexdigest()
    splits = files_by_split(path)
    pairs = [(split, file) for split, files in splits.items() for file in files]
    hashes = [f"{split or ''}{file_sha256(file, 'path', path)}" for split, file in pairs]
    if any(format_of(file) not in ("txt", "bin") for _, file in pairs):
        hashes.insert(0, "documents")
    if is_repository(Path(os.path.expanduser(path))):  # what is read of these files, and as what
        about = json.dumps([content for _, content in descriptions(path)], sort_keys=True, default=str)
        hashes.insert(0, hashlib.sha256(about.encode()).hexdigest())
    return joined_sha256(hashes)
