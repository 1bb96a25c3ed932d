"""Data sets on the Hugging Face Hub, and folders that are copies of one: opened by datasets, without contacting anybody
where no user has named them."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from poslab.errors import SettingError, first_line

HUB = "hf://"  # begins the path of a data set on the Hugging Face Hub, hf://owner/name
_ALONE = "a quoted glob, such as '*.parquet', reads its files alone"  # what to do about a copy of a data set


def is_repository(folder: Path) -> bool:
    """Return whether the folder is a copy of a data set on the Hub whose README.md says which files are what."""
    card = folder / "README.md"
    return card.is_file() and bool(re.match(r"---\n(?:.*\n)*?configs:", card.read_text(errors="replace")))


def is_remote(path: Any) -> bool:
    """Return whether reading a path contacts a machine that it names, as Windows does for //host/share."""
    return isinstance(path, str) and PureWindowsPath(path).drive.startswith("\\\\")


@contextmanager
def on_this_machine(path: Any) -> Iterator[None]:
    """Contact nobody within for a corpus at `path`, which a description names and no user: a data set of the Hub comes
    from this machine's caches. Raises SettingError for what lies elsewhere."""
    folder = Path(os.path.expanduser(str(path)))
    if is_remote(path):
        raise SettingError("path", path, "is on another machine, which is not contacted unless a command names it")
    if str(path).startswith(HUB) or is_repository(folder):
        _require_files_here(path)
        hub, library = import_module("huggingface_hub.constants"), import_module("datasets.config")
        from unittest.mock import patch  # which takes as long to load as all of the rest

        with patch.object(hub, "HF_HUB_OFFLINE", True), patch.object(library, "HF_HUB_OFFLINE", True):
            try:
                yield
            except SettingError as error:
                if error.option != "path" or not str(path).startswith(HUB):
                    raise
                problem = "is not in this machine's caches, and the Hub is not contacted unless a command names it"
                raise SettingError("path", path, problem) from error
    else:
        yield


def _require_files_here(path: Any) -> None:
    """Raise SettingError for a copy of a data set that names files on other machines: none is contacted for it, and
    nobody would see that they change."""
    for file, content in descriptions(path):
        named = content.get("configs") if isinstance(content, Mapping) else content
        for text in _texts(named):
            if "://" in text or is_remote(text):
                problem = f"{file} names files elsewhere, {text}; download them, and name their folder"
                raise SettingError("path", path, problem)


def _require_inside(path: str, builder: Any) -> None:
    """Raise SettingError for a copy of a data set that names files out of its folder, whose changes nobody would see.
    Links within it are followed, as the Hub's cache has them."""
    folder = Path(os.path.expanduser(path)).resolve()
    for file in chain.from_iterable((builder.config.data_files or {}).values()):
        if not Path(os.path.normpath(file)).is_relative_to(folder):
            raise SettingError("path", path, f"its README.md names {file}, out of its folder; name that file itself")


def descriptions(path: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the files that say which files of a data set are what, with what they say, read as datasets does; none for
    a folder that isn't there. Raises SettingError for one that can't be read.

    Escapes of yaml hide an address from whoever reads its text.
    """
    folder = Path(os.path.expanduser(str(path)))
    for file in (folder / "README.md", folder / ".huggingface.yaml"):
        if not file.is_file():
            continue
        try:
            if file.suffix == ".yaml":
                content = yaml.safe_load(file.read_text(encoding="utf-8"))
            else:
                content = import_module("huggingface_hub").DatasetCard.load(file).data.to_dict()
            json.dumps(content, default=str, skipkeys=True)  # ValueError where it refers to itself
        except Exception as error:  # yaml's, its constructors', the library's
            raise SettingError("path", path, f"{file} can't be read: {_in_one_line(error)}; {_ALONE}") from error
        yield file, content


def _texts(content: Any) -> Iterator[str]:
    """Yield every text within plain values. What stands in several places, as by yaml's aliases, is read once."""
    left, seen = [content], set[int]()
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping | list | tuple | set) and id(value) not in seen:
            seen.add(id(value))
            left += [*value, *value.values()] if isinstance(value, Mapping) else value


def _in_one_line(error: Exception) -> str:
    """Return the message of an error; of yaml's, whose lines show the place, the problem and its line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1} of its yaml: {error.problem}"
    return first_line(error)


def hugging_face() -> Any:
    """Return the library `datasets`, whose messages are in its errors, and whose bars are for terminals."""
    library = import_module("datasets")
    library.logging.set_verbosity(library.logging.CRITICAL)
    if not sys.stderr.isatty():
        library.disable_progress_bars()
    return library


def opened_repository(path: str, name: str | None, cache_dir: Path | None = None) -> tuple[Any, str]:
    """Return the builder of a data set on the Hub, or of a folder that is a copy of one, and its commit.

    Without a network it comes from the cache of data sets that were loaded before, or else from the Hub's own cache.
    name: of its configuration. cache_dir: where a folder's files are converted to. Raises SettingError.
    """
    repository = path.removeprefix(HUB).removeprefix("datasets/")
    try:
        try:
            own = {} if path.startswith(HUB) else {"cache_dir": str(cache_dir)}  # or what was downloaded before
            if own:
                _require_files_here(path)
            builder = hugging_face().load_dataset_builder(repository, name, **own)
            if own:
                _require_inside(path, builder)
            return builder, str(builder.hash)
        except ConnectionError:
            download = import_module("huggingface_hub").snapshot_download
            folder = download(repository, repo_type="dataset", local_files_only=True)
            _require_files_here(folder)
            return hugging_face().load_dataset_builder(folder, name), Path(folder).name
    except SettingError:
        raise
    except ValueError as error:  # one of several configurations is to be named, or there is none of that name
        raise SettingError("name", name, " ".join(str(error).splitlines()[:2])) from error
    except OSError as error:
        missing = "the Hub can't be reached, and its cache on this machine doesn't have it"
        reason = missing if isinstance(error.__context__, ConnectionError) else first_line(error)
        raise SettingError("path", path, f"can't be loaded: {reason}") from error
    except Exception as error:  # a README.md of any content, a loading script, which newer versions refuse
        raise SettingError("path", path, f"can't be loaded: {_in_one_line(error)}; {_ALONE}") from error
