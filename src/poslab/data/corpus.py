"""Corpora as arrays of token ids, with parts to train on, to validate and to test.

A text (text.py), or documents of any other format (documents.py), are tokenised once for each encoding: token ids are
kept as .npy files in the cache and memory-mapped.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from tiktoken_ext.openai_public import ENDOFTEXT
from torch import Tensor

from poslab.config.corpora import (
    chosen_splits,
    compression_of,
    corpus_format,
    files_by_split,
    find_files,
    fingerprint,
    text_name,
)
from poslab.config.files import UNFINISHED, appearing_whole, default_cache_dir
from poslab.config.hugging_face import HUB, on_this_machine
from poslab.config.schema import DataConfig
from poslab.data.documents import load_repository, tokenised_documents
from poslab.data.text import Encoded, read_text, separated_documents, text_pieces, token_documents
from poslab.data.tokenizer import Bytes, Encoding, Vocabulary, end_token, load_tokenizer, observed_ids
from poslab.errors import SettingError, UserError

_LAYOUT = "6"  # part of every cache key; another number wherever the same corpus would give other files
_MUCH = 20 << 20  # bytes that take a while
_SPLITS = ("train", "validation", "test")


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


def corpus_of(config: DataConfig, here: bool = False) -> Corpus:
    """Return the text of a run. here: as `on_this_machine` finds it. Raises as `load_corpus` does, by the names of
    settings on the command line."""
    cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else default_cache_dir()
    split = Split(config.validation_share, config.test_share)
    try:
        tokenizer = load_tokenizer(config.encoding)
        observed = config.vocabulary == "observed"
        with on_this_machine(config.path) if here else nullcontext():
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
        contents = chosen_splits(path, files_by_split(path), only)
    if split.test and "test" in contents:
        raise SettingError("test_share", split.test, f"{path} has a test split of its own; leave it at 0")
    test, validation = (0 if part in contents else getattr(split, part) for part in ("test", "validation"))
    shares = (1 - test - validation, 1 - test, 1)  # up to which the parts go of what is cut
    key = f"{_LAYOUT} {kind} {column} {name} {only} {dtype} {separator} {tokenizer.name} {sha256}"

    def kept(make: Callable[..., Iterator[Encoded]], content: Any, *own: Any, **settings: Any) -> tuple[Tensor, Tensor]:
        def checked() -> Iterator[Encoded]:
            _announce(path)
            yield from make(path, content, tokenizer, *own, **settings)
            if not path.startswith(HUB) and fingerprint(path) != sha256:
                raise SettingError("path", path, "the text changed while it was read; start again once it is complete")

        return _kept(_file(cache_dir, f"{key} {part} {own}"), _smallest_type(tokenizer.n_vocab), checked)

    splits: dict[str, tuple[Tensor, Tensor]] = {}
    for part, content in contents.items():
        names, own_shares = (_SPLITS, shares) if part in ("", "train") else ((part,), (1,))
        if kind == "txt" and separator is None:  # cut before it is tokenised, documents after it
            length = _characters(path, content, isinstance(tokenizer, Bytes))
            stops = [0, *(int(share * length) for share in own_shares)]
            cuts = [kept(text_pieces, content, *cut) for cut in pairwise(stops)]
        else:
            make, settings = {
                "txt": (separated_documents, {"separator": separator}),
                "bin": (token_documents, {"dtype": dtype}),
            }.get(kind, (tokenised_documents, {"kind": kind, "column": column}))
            whole = kept(make, content, **settings)
            if not len(whole[1]):
                raise SettingError("path", path, "the text is empty")
            cuts = _cut(*whole, own_shares, len(end_token(tokenizer)))
        splits |= dict(zip(names, cuts, strict=True))
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        vocabulary = Vocabulary(tokenizer, observed_ids(torch.cat([observed_ids(of) for of, _ in splits.values()])))
        splits = {part: (_renumbered(of, vocabulary), ends) for part, (of, ends) in splits.items()}
    documents: int | None = sum(len(ends) for _, ends in splits.values())
    if kind == "txt" and separator is None:
        files = sum(map(len, contents.values()))
        documents = files if files > 1 else None
    tokens = {part: splits[part][0] for part in _SPLITS}
    ends = {part: splits[part][1] for part in _SPLITS}
    return Corpus(text_name(path), sha256, vocabulary, documents=documents, ends=ends, **tokens)


def _renumbered(tokens: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Return the places of tokens (N,) in a vocabulary of the observed ones, in its smallest type."""
    dtype = getattr(torch, _smallest_type(vocabulary.size))
    # In pieces, because copies are wider until they are narrowed.
    return torch.cat([vocabulary.narrow(piece).to(dtype) for piece in tokens.split(1 << 20)])


@cache
def _announce(path: str) -> None:
    """Print once that a large text is tokenised, where no bar shows it."""
    size = 0 if path.startswith(HUB) else sum(file.stat().st_size for file in find_files(path))
    if size > _MUCH and not sys.stderr.isatty():
        print(f"tokenising {size / 1e6:,.0f} MB, once for this text and encoding ...", flush=True)


def _characters(path: str, files: Sequence[Path], binary: bool) -> int:
    """Return the number of characters of a text. Prints how many marks of documents' ends, and whether lines of JSON,
    are read as text."""
    length, marks, tail = 0, 0, ""
    for file in files:
        for number, block in enumerate(read_text(path, file, binary)):
            if not number and _is_json(block.partition("\n")[0]):
                named = f".jsonl{file.suffix if compression_of(file) else ''}"
                print(f"data     {file} has lines of JSON, read as ordinary text; as a {named} they would be documents")
            length += len(block)
            marks += (tail + block).count(ENDOFTEXT)
            tail = (tail + block)[1 - len(ENDOFTEXT) :]
    if not length:
        raise SettingError("path", path, "the text is empty")
    if marks:
        setting = f"data.document_separator='{ENDOFTEXT}' would end documents there"
        print(
            f"data     {text_name(path)} has {ENDOFTEXT} {marks:,} times, read as ordinary text; {setting}", flush=True
        )
    return length


def _is_json(line: str) -> bool:
    """Return whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _cut(tokens: Tensor, ends: Tensor, shares: Sequence[float], ending: int) -> list[tuple[Tensor, Tensor]]:
    """Return tokens and ends of parts that have these shares of the documents, without the `ending` tokens that part
    their last document from the next; a single document is cut inside."""
    if len(ends) == 1:
        stops = [int(share * (len(tokens) - ending)) + ending for share in shares]
    else:
        documents = [int(share * len(ends) + 1e-9) for share in shares]  # 1 - 0.1 - 0.8 of ten is one
        stops = [int(ends[number - 1]) if number else 0 for number in documents]
    splits, start = [], 0
    for stop in stops:
        last = max(start, stop - ending)
        first, after = torch.searchsorted(ends, torch.tensor([start, last + ending]), right=True).tolist()
        splits.append((tokens[start:last], ends[first:after] - start))
        start = last if len(ends) == 1 else stop
    return splits


# The cache


def _file(cache_dir: Path, key: str) -> Path:
    return cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"


def _kept(file: Path, dtype: str, make: Callable[[], Iterator[Encoded]]) -> tuple[Tensor, Tensor]:
    """Return the tokens (N,) that are kept in the file, and where documents end in them, int64 (D,), memory-mapped.
    Where they are missing or cut they are made, by one process while others wait.

    Raises UserError where the folder can't be written, and whatever `make` raises.
    """
    if (tokens_and_ends := _read(file)) is not None:
        return tokens_and_ends
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock") as lock:
            try:
                if (tokens_and_ends := _read(file)) is None:
                    for left in file.parent.glob(f"{file.stem}.*{UNFINISHED}"):  # by a process that was killed
                        left.unlink()
                    _write(file, np.dtype(dtype), make())
                    tokens_and_ends = _read(file)
            finally:
                Path(lock.lock_file).unlink(missing_ok=True)  # a process that waits looks for the tokens first
    except OSError as error:
        problem = f"data.cache_dir={file.parent}: can't be written: {error.strerror or error}; name another"
        raise UserError(problem) from error
    assert tokens_and_ends is not None
    return tokens_and_ends


def _read(file: Path) -> tuple[Tensor, Tensor] | None:
    try:
        # Copy-on-write, as torch warns of arrays that can't be written to.
        tokens, ends = (np.load(of, mmap_mode="c") for of in (file, file.with_suffix(".ends.npy")))
    except (OSError, ValueError, EOFError):  # there is none yet, or it was cut
        return None
    return torch.from_numpy(tokens), torch.from_numpy(ends)


def _write(file: Path, dtype: np.dtype[Any], pieces: Iterator[Encoded]) -> None:
    def write_header(length: int) -> None:  # which leaves place for a longer number
        header = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(opened, header)

    length, ends = 0, [np.array([], np.int64)]
    with appearing_whole(file) as unfinished, unfinished.open("wb") as opened:
        write_header(0)
        for piece in pieces:
            ends.append(piece.ends + length)
            opened.write(piece.tokens.astype(dtype).tobytes())
            length += len(piece.tokens)
        opened.seek(0)
        write_header(length)
        # The tokens appear last, so that ends are there wherever tokens are.
        with (
            appearing_whole(file.with_suffix(".ends.npy")) as unfinished_ends,
            unfinished_ends.open("wb") as opened_ends,
        ):
            np.save(opened_ends, np.concatenate(ends))


def _smallest_type(vocabulary_size: int) -> str:
    return "uint16" if vocabulary_size <= 1 << 16 else "int32"
