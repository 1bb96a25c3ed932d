"""Corpora as arrays of token ids, with parts to train on, to validate and to test.

A text is tokenised by tiktoken (text.py), documents of any other format by Hugging Face's datasets (documents.py), once
for each encoding: token ids are kept as .npy files in the cache and memory-mapped.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from filelock import FileLock, Timeout
from tiktoken_ext.openai_public import ENDOFTEXT
from torch import Tensor

from poslab.config.corpora import HUB, chosen_parts, corpus_format, fingerprint, parts_at, text_name
from poslab.config.files import UNFINISHED, appearing_whole, default_cache_dir
from poslab.config.schema import DataConfig
from poslab.data.documents import load_repository, tokenised_documents
from poslab.data.text import Encoded, read_text, separated_documents, text_pieces, token_documents
from poslab.data.tokenizer import Array, Bytes, Encoding, Vocabulary, end_token, load_tokenizer, observed_ids
from poslab.errors import SettingError, UserError

_LAYOUT = "5"  # part of every cache key; another number wherever the same corpus would give other files
_BLOCK = 1 << 20  # tokens renumbered at a time
_MARK = ENDOFTEXT
_PARTS = ("train", "validation", "test")
_CUT = ("", "train")  # what parts are cut from that the files don't name


class Split(NamedTuple):
    """Shares of a text's characters, or documents. The first ones train, the next ones validate, the last ones test."""

    validation: float = 0.1
    test: float = 0.0


USUAL = Split()
WHOLE = Split(validation=1.0)  # all of it is the validation part


@dataclass(frozen=True)
class Corpus:
    """Tokens of a text in three parts, each int32 or uint16 of (number of tokens,), ids of `vocabulary`; `test` may be
    empty. documents: how many there are; None for a text of one file. ends: by the name of the part, where documents
    end in it, int64 and ascending; the last end may lie beyond the part by the end-of-text token."""

    name: str
    sha256: str
    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor
    test: Tensor
    documents: int | None
    ends: Mapping[str, Tensor]

    @property
    def held_out(self) -> tuple[str, Tensor]:
        """Name and tokens of the part that is reported: `test` decides nothing, `validation` the best weights."""
        return ("test", self.test) if len(self.test) else ("validation", self.validation)


def reading(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `load_corpus` that say how a corpus is read, from the settings of a run's data."""
    names = {"name": "name", "only": "split", "dtype": "dtype", "separator": "document_separator", "column": "column"}
    return {argument: data[setting] for argument, setting in names.items()}


def corpus_of(config: DataConfig) -> Corpus:
    """Return the text of a run. Raises as `load_corpus` does, by the names of settings on the command line."""
    cache_dir = Path(config.cache_dir) if config.cache_dir else default_cache_dir()
    split = Split(config.validation_share, config.test_share)
    try:
        tokenizer = load_tokenizer(config.encoding)
        observed = config.vocabulary == "observed"
        return load_corpus(config.path, tokenizer, cache_dir, observed, split, **reading(vars(config)))
    except SettingError as error:
        raise error.prefixed("data") from error


def load_corpus(
    path: str,
    tokenizer: Encoding,
    cache_dir: Path,
    observed_only: bool = False,
    split: Split = USUAL,
    column: str = "text",
    *,
    name: str | None = None,
    only: str | None = None,
    dtype: str | None = None,
    separator: str | None = None,
) -> Corpus:
    """Return the corpus at `path`, tokenised now or before. The end-of-text token, where the encoding has one, stands
    between documents, and between the files of a text, but never between parts.

    Splits that the files or the data set name are the parts; what they don't name is cut from the end of `train`, a
    text by its characters, before it is tokenised, documents by their number, a single one by its tokens.
    observed_only: renumber the ids that occur, of all parts together. column: of documents. name: of a data set's
    configuration. only: the split that is all of the corpus, or `all`. dtype: of a .bin. separator: what divides a text
    into documents. Raises SettingError for a text that is missing, empty, damaged or changing, UserError where the
    cache can't be written.
    """
    kind, sha256 = corpus_format(path, tokenizer.name), fingerprint(path, name)
    if kind == "repository":
        contents = load_repository(path, name, only, cache_dir / "datasets")
    else:
        contents = chosen_parts(path, parts_at(path), only)
    if split.test and "test" in contents:
        raise SettingError("test_share", split.test, f"{path} has a test split of its own; leave it at 0")
    test, validation = (0 if part in contents else getattr(split, part) for part in ("test", "validation"))
    shares = (1 - test - validation, 1 - test, 1)  # up to which the parts of what is cut go
    of_characters = kind == "txt" and separator is None  # cut before it is tokenised, documents after it
    settings = shares if of_characters else (column, name, only, dtype, separator)
    key = f"{_LAYOUT} {kind} {settings} {tokenizer.name} {sha256}"
    pieces: dict[str, Callable[[], Iterator[Encoded]]] = {}
    for part, content in contents.items():
        if of_characters:
            length = _characters(path, content, isinstance(tokenizer, Bytes))
            stops = [int(share * length) for share in (shares if part in _CUT else (1,))]
            cuts = [partial(text_pieces, path, content, tokenizer, *cut) for cut in pairwise([0, *stops])]
            pieces |= dict(zip(_names(part), cuts, strict=True))
        elif kind == "txt":
            pieces[part] = partial(separated_documents, path, content, tokenizer, str(separator))
        elif kind == "bin":
            pieces[part] = partial(token_documents, path, content, tokenizer, dtype)
        else:
            folder = _file(cache_dir, f"{key} {part}", "datasets")
            pieces[part] = partial(tokenised_documents, path, kind, content, column, tokenizer, folder)

    def checked(make: Callable[[], Iterator[Encoded]]) -> Iterator[Encoded]:
        tokens = 0
        for encoded in make():
            tokens += len(encoded.tokens)
            yield encoded
        if not tokens and not of_characters:
            raise SettingError("path", path, "the text is empty")
        if not path.startswith(HUB) and fingerprint(path) != sha256:
            raise SettingError("path", path, "the text changed while it was read; start again once it is complete")

    arrays = {}
    for part, make in pieces.items():
        file = _file(cache_dir, f"{key} {part}", "npy")
        arrays[part] = _kept(file, _smallest_type(tokenizer.n_vocab), partial(checked, make))
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        ids = torch.cat([observed_ids(array.tokens) for array in arrays.values()])
        vocabulary = Vocabulary(tokenizer, observed_ids(ids))
        arrays = {part: _renumbered(array, vocabulary) for part, array in arrays.items()}
    documents = sum(map(len, contents.values()) if of_characters else (len(array.ends) for array in arrays.values()))
    if not of_characters:
        whole, arrays, ending = arrays, {}, len(end_token(tokenizer))
        for part, array in whole.items():
            arrays |= dict(zip(_names(part), _cut(array, shares if part in _CUT else (1,), ending), strict=True))
    train, validation_part, test_part = (arrays[part] for part in _PARTS)
    return Corpus(
        text_name(path),
        sha256,
        vocabulary,
        train.tokens,
        validation_part.tokens,
        test_part.tokens,
        None if of_characters and documents == 1 else documents,
        {part: arrays[part].ends for part in _PARTS},
    )


def _names(part: str) -> tuple[str, ...]:
    """Return the parts that a part of the contents becomes."""
    return _PARTS if part in _CUT else (part,)


def _characters(path: str, files: Sequence[Path], binary: bool) -> int:
    """Return the number of characters of a text. Prints how many marks of documents' ends are read as text."""
    length, marks, tail = 0, 0, ""
    for file in files:
        for block in read_text(path, file, binary):
            length += len(block)
            marks += (tail + block).count(_MARK)
            tail = (tail + block)[1 - len(_MARK) :]
    if not length:
        raise SettingError("path", path, "the text is empty")
    if marks:
        setting = f"data.document_separator='{_MARK}' would end documents there"
        print(f"data     {text_name(path)} has {_MARK} {marks:,} times, read as ordinary text; {setting}", flush=True)
    return length


def _cut(array: "_Array", shares: Sequence[float], ending: int) -> list["_Array"]:
    """Return the parts of a corpus, each with a share of the documents, the last of which ends before the `ending`
    tokens that part it from the next; a single document is cut inside."""
    ends = array.ends
    if len(ends) == 1:
        bounds = [0, *(int(share * (len(array.tokens) - ending)) for share in shares)]
    else:
        documents = [0, *(int(share * len(ends) + 1e-9) for share in shares)]  # 1 - 0.1 - 0.8 of ten is one
        bounds = [int(ends[number - 1]) if number else 0 for number in documents]
    parts = []
    for start, stop in pairwise(bounds):
        last = stop if len(ends) == 1 else max(start, stop - ending)
        first, after = torch.searchsorted(ends, torch.tensor([start, last + ending]), right=True).tolist()
        parts.append(_Array(array.file, array.tokens[start:last], ends[first:after] - start))
    return parts


# The cache


class _Array(NamedTuple):
    """Tokens (N,), and where documents end in them, int64 (D,), as they are kept in a file, or a part of it."""

    file: Path
    tokens: Tensor
    ends: Tensor


class _GrowingFile:
    """A .npy of one dimension that is appended to."""

    def __init__(self, file: Path, dtype: str) -> None:
        self._opened, self.dtype, self.length = file.open("wb"), np.dtype(dtype), 0
        self._write_header()

    def append(self, items: Array) -> None:
        self._opened.write(items.astype(self.dtype).tobytes())
        self.length += len(items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.seek(0)
        self._write_header()
        self._opened.close()

    def _write_header(self) -> None:
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._opened, header)  # which leaves place for the length to grow


def _file(cache_dir: Path, key: str, ending: str) -> Path:
    return cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.{ending}"


def _kept(file: Path, dtype: str, make: Callable[[], Iterator[Encoded]]) -> _Array:
    """Return what is kept in the file, memory-mapped; where it is missing or cut, it is made, by one process while
    others wait. Raises UserError where the folder can't be written, and whatever `make` raises."""
    if (found := _read(file)) is not None:
        return found
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{file}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print("waiting for another process that tokenises the same text ...", flush=True)
            lock.acquire()
        try:
            if (found := _read(file)) is not None:
                return found
            for left in file.parent.glob(f"{file.stem}.*{UNFINISHED}"):  # by a process that was killed
                left.unlink()
            # The tokens appear last, so that ends are there wherever tokens are.
            with (
                appearing_whole(file) as tokens_file,
                appearing_whole(_ends_of(file)) as ends_file,
                _GrowingFile(tokens_file, dtype) as tokens,
                _GrowingFile(ends_file, "int64") as ends,
            ):
                for encoded in make():
                    ends.append(encoded.ends + tokens.length)
                    tokens.append(encoded.tokens)
            found = _read(file)
            assert found is not None
            return found
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # whoever waits looks for the tokens first
            lock.release()
    except OSError as error:
        problem = f"data.cache_dir={file.parent}: can't be written: {error.strerror or error}; name another"
        raise UserError(problem) from error


def _ends_of(file: Path) -> Path:
    return file.with_suffix(".ends.npy")


def _read(file: Path) -> _Array | None:
    try:
        # Copy-on-write, as torch warns of arrays that can't be written to.
        tokens, ends = (torch.from_numpy(np.load(of, mmap_mode="c")) for of in (file, _ends_of(file)))
        return _Array(file, tokens, ends)
    except (OSError, ValueError, EOFError):  # there is none yet, or it was cut
        return None


def _renumbered(array: _Array, vocabulary: Vocabulary) -> _Array:
    """Return the tokens as ids of the vocabulary, kept in a file."""
    assert vocabulary.observed is not None
    ids = hashlib.sha256(vocabulary.observed.numpy().tobytes()).hexdigest()[:16]

    def make() -> Iterator[Encoded]:
        for piece in array.tokens.split(_BLOCK):
            yield Encoded(vocabulary.narrow(piece).numpy(), np.array([], np.int64))

    return _kept(array.file.with_suffix(f".{ids}.npy"), _smallest_type(vocabulary.size), make)._replace(ends=array.ends)


def _smallest_type(vocabulary_size: int) -> str:
    return "uint16" if vocabulary_size <= 1 << 16 else "int32"
