"""A text as two arrays of tokens, training and validation, cached on disk and memory-mapped.

The text is split before it is tokenised, and read in pieces, so that neither its length nor its alphabet decides how
much memory is needed.
"""

import hashlib
import os
import re
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import tiktoken
import torch
from torch import Tensor
from tqdm import tqdm

from poslab.data.files import find_files, fingerprint
from poslab.data.vocabulary import Vocabulary, observed_ids
from poslab.errors import SettingError, UserError

TRAIN_FRACTION = 0.9  # of the characters
_PIECE = 1 << 20  # characters read at a time
_TOKEN_BYTES = 4  # int32
_LAYOUT = "1"  # part of every cache key; another number wherever the same text would give other files

# Where every tiktoken pattern starts a new word, so that tokenising the text before and after separately gives the same
# tokens as tokenising it whole: between a letter or digit and a space or line end, and after a single line end (unless
# a slash follows, which o200k_base takes along). Elsewhere around punctuation and white space it may not.
_SAFE_CUT = re.compile(r"[^\W_](?=[ \r\n])|(?<=\S)\n(?=[^\s/])")


@dataclass(frozen=True)
class Corpus:
    """The tokens of a text: `train` and `validation` are int32 of (number of tokens,), ids of `vocabulary`."""

    name: str
    sha256: str
    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor


def load_corpus(
    path: str,
    tokenizer: tiktoken.Encoding,
    cache_dir: Path,
    observed_only: bool = False,
    train_fraction: float = TRAIN_FRACTION,
) -> Corpus:
    """The text at `path`, tokenised now or before. Files of a folder or glob are joined by the end-of-text token.

    observed_only: renumber the ids that the text contains, training and validation together, and leave out all others.
    train_fraction: of the characters; with 0 all of the text is the validation part, tokenised in one piece.
    Raises SettingError for a text that is missing, empty or not UTF-8, UserError where the cache can't be written.
    """
    files = find_files(path)
    sha256 = fingerprint(path)
    key = hashlib.sha256(f"{_LAYOUT} {train_fraction} {tokenizer.name} {sha256}".encode()).hexdigest()[:32]
    train, validation = (cache_dir / f"{key}.{part}.bin" for part in ("train", "validation"))
    if not (train.exists() and validation.exists()):
        _tokenize_split(files, path, tokenizer, train_fraction, train, validation)
    name = files[0].name if len(files) == 1 else f"{len(files)} files of {path}"
    corpus = Corpus(name, sha256, Vocabulary(tokenizer), _memory_map(train), _memory_map(validation))
    return _renumber(corpus, cache_dir, key) if observed_only else corpus


def _renumber(corpus: Corpus, cache_dir: Path, key: str) -> Corpus:
    """The corpus in a vocabulary of its own, in files beside those of the encoding's ids."""
    vocabulary = Vocabulary(corpus.vocabulary.encoding, observed_ids(corpus.train, corpus.validation))
    targets = {part: cache_dir / f"{key}.observed.{part}.bin" for part in ("train", "validation")}
    for part, target in targets.items():
        if not target.exists():
            with _appearing_whole(target) as opened:
                for piece in getattr(corpus, part).split(_PIECE):
                    vocabulary.narrow(piece).numpy().tofile(opened)
    train, validation = (_memory_map(file) for file in targets.values())
    return replace(corpus, vocabulary=vocabulary, train=train, validation=validation)


def _tokenize_split(
    files: list[Path], path: str, tokenizer: tiktoken.Encoding, train_fraction: float, train: Path, validation: Path
) -> None:
    total = sum(len(piece) for piece in _pieces(files, path))
    if total == 0:
        raise SettingError("path", path, "the text is empty")
    split = int(train_fraction * total)
    if total > 20 * _PIECE and not sys.stderr.isatty():  # where no bar is shown
        print(f"tokenising {total:,} characters, once for this text and encoding ...", flush=True)
    with tqdm(total=total, desc="tokenising", unit=" chars", unit_scale=True, leave=False, disable=None) as progress:
        for target, start, stop in ((train, 0, split), (validation, split, total)):
            with _appearing_whole(target) as opened:
                _encode(opened, _between(_pieces(files, path), start, stop), tokenizer, progress)


def _pieces(files: list[Path], path: str) -> Iterator[str]:
    """The text in pieces of up to _PIECE characters; an empty piece stands between two files."""
    for number, file in enumerate(files):
        if number:
            yield ""
        try:
            with file.open(encoding="utf-8-sig", newline="") as opened:  # drops a BOM, keeps line ends
                while piece := opened.read(_PIECE):
                    if "\0" in piece:
                        raise SettingError("path", path, f"{file} is not a text, it contains null bytes")
                    yield piece
        except UnicodeDecodeError as error:
            problem = f"{file} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); convert it to UTF-8 first"
            raise SettingError("path", path, problem) from error


def _between(pieces: Iterator[str], start: int, stop: int) -> Iterator[str]:
    """The characters start..stop-1 of the pieces, and the empty pieces among them."""
    position = 0
    for piece in pieces:
        begin, end = max(start - position, 0), stop - position
        if end <= 0:
            return
        if begin < len(piece) or (not piece and position > start):
            yield piece[begin:end]
        position += len(piece)


@contextmanager
def _appearing_whole(target: Path) -> Iterator[IO[bytes]]:
    """A file to write tokens to as int32, which appears under its name only once it is complete."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            with unfinished.open("wb") as opened:
                yield opened
            os.replace(unfinished, target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except PermissionError as error:
        if not target.exists():  # Windows: another run has just put it there, and reads it
            raise UserError(f"data.cache_dir={target.parent}: can't be written; name another") from error
    except OSError as error:
        raise UserError(f"data.cache_dir={target.parent}: can't be written: {error.strerror}; name another") from error


def _encode(opened: IO[bytes], pieces: Iterator[str], tokenizer: tiktoken.Encoding, progress: "tqdm[None]") -> None:
    def write(tokens: list[int]) -> None:
        array("i", tokens).tofile(opened)

    rest = ""
    for piece in pieces:
        progress.update(len(piece))
        rest += piece
        if not piece:  # the end of a file
            write([*tokenizer.encode_ordinary(rest), tokenizer.eot_token])
            rest = ""
        elif cut := _last_safe_cut(rest, since=len(rest) - len(piece)):
            write(tokenizer.encode_ordinary(rest[:cut]))
            rest = rest[cut:]
    write(tokenizer.encode_ordinary(rest))


def _last_safe_cut(text: str, since: int) -> int:
    """The last place at or after `since` where the text may be cut; 0 if there is none."""
    for end in range(len(text), max(since, 1), -1000):
        cuts = [match.end() for match in _SAFE_CUT.finditer(text, max(end - 1001, since, 0), end)]
        if cuts:
            return cuts[-1]
    return 0


def _memory_map(file: Path) -> Tensor:
    count = file.stat().st_size // _TOKEN_BYTES
    if count == 0:  # an empty file can't be mapped
        return torch.empty(0, dtype=torch.int32)
    return torch.from_file(str(file), shared=False, size=count, dtype=torch.int32)
