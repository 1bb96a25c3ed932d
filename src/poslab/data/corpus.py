"""A text as arrays of token ids, to train on, to validate and to test, cached on disk and memory-mapped.

The text is split before it is tokenised, and read in pieces, so that neither its length nor its alphabet decides how
much memory is needed.
"""

import codecs
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiktoken
import torch
from torch import Tensor

from poslab.config.files import (
    Kind,
    default_cache_dir,
    find_files,
    fingerprint,
    joined_sha256,
    kind_of,
    text_name,
)
from poslab.config.schema import DataConfig
from poslab.data.document_tokens import Source, smallest_type, tokenised
from poslab.data.token_cache import Encoded, encode, end_token, in_order, read_or_make, write_all
from poslab.data.token_files import GrowingFiles
from poslab.data.tokenizer import Bytes, Encoding, load_tokenizer
from poslab.data.vocabulary import Vocabulary, observed_ids
from poslab.errors import SettingError

_PIECE = 1 << 20  # bytes of text, or tokens, at a time
_LAYOUT = "3"  # part of every cache key; another number wherever the same text would give other files

# Where every tiktoken pattern starts a new word, so that tokenising the text before and after separately gives the same
# tokens as tokenising it whole: between a letter or digit and a space or line end, and after a single line end (unless
# a slash follows, which o200k_base takes along). Elsewhere around punctuation and white space it may not.
_SAFE_CUT = re.compile(r"[^\W_](?=[ \r\n])|(?<=\S)\n(?=[^\s/])")


class Split(NamedTuple):
    """Shares of a text's characters, or documents. The first ones train, those after them validate, the last ones
    test."""

    validation: float = 0.1
    test: float = 0.0


USUAL = Split()
WHOLE = Split(validation=1.0)  # all of it is the validation part


@dataclass(frozen=True)
class Corpus:
    """The tokens of a text: each part is int32 or uint16 of (number of tokens,), ids of `vocabulary`; `test` may be
    empty. documents: how many there are, where the text is made of some. ends: by the name of the part, where its
    documents end in it, int64 and ascending; without a part that is one document, or a piece of one."""

    name: str
    sha256: str
    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor
    test: Tensor
    documents: int | None = None
    ends: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def held_out(self) -> tuple[str, Tensor]:
        """The name and tokens of the part that is reported: `test` decides nothing, `validation` the best weights."""
        return ("test", self.test) if len(self.test) else ("validation", self.validation)


def corpus_of(config: DataConfig) -> Corpus:
    """The text of a run. Raises as `load_corpus` does, by the names of settings on the command line."""
    cache_dir = Path(config.cache_dir) if config.cache_dir else default_cache_dir()
    split = Split(config.validation_share, config.test_share)
    try:
        tokenizer = load_tokenizer(config.encoding)
        return load_corpus(config.path, tokenizer, cache_dir, config.vocabulary == "observed", split, config.column)
    except SettingError as error:
        raise error.prefixed("data") from error


def load_corpus(
    path: str,
    tokenizer: Encoding,
    cache_dir: Path,
    observed_only: bool = False,
    split: Split = USUAL,
    column: str = "text",
) -> Corpus:
    """The text at `path`, tokenised now or before. Files of a folder or glob are joined by the end-of-text token, where
    the encoding has one, and so are documents, which are split by their number.

    observed_only: renumber the ids that the text contains, all parts together, and leave out all others. Raises
    SettingError for a text that is missing, empty, not UTF-8 or changing, UserError where the cache can't be written.
    """
    sha256 = fingerprint(path)
    shares = (1 - split.test - split.validation, 1 - split.test)  # up to which there is training, and validation
    places = {"train": (0, shares[0]), "validation": shares, "test": (shares[1], 1)}
    files = find_files(path)
    if (kind := kind_of(path, files, tokenizer.name)) is not Kind.TEXT:
        return _of_documents(Source(path, files, kind, column, sha256), tokenizer, cache_dir, observed_only, places)
    cuts = "-".join(map(str, shares if split.test else shares[:1]))
    key = hashlib.sha256(f"{_LAYOUT} {cuts} {tokenizer.name} {sha256}".encode()).hexdigest()[:32]

    def part(name: str, begin: float, end: float) -> list[Tensor]:
        """Its tokens, and of several files also where they end in it."""
        make = partial(_make_part, path, sha256, tokenizer, begin, end)
        made = {"tokens": (cache_dir / f"{key}.{name}.bin", torch.int32)}
        if len(files) > 1:
            made["ends"] = cache_dir / f"{key}.{name}.ends", torch.int64
        return read_or_make(made, make)

    found = {name: part(name, *place) for name, place in places.items() if name != "test" or split.test}
    parts, ends = ({name: of[which] for name, of in found.items() if which < len(of)} for which in (0, 1))
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        vocabulary = Vocabulary(tokenizer, observed_ids(*parts.values()))
        parts = {
            name: _renumbered(tokens, vocabulary, cache_dir / f"{key}.observed.{name}.bin")
            for name, tokens in parts.items()
        }
    test = parts.get("test", torch.empty(0, dtype=torch.int32))
    documents = len(files) if len(files) > 1 else None
    name = text_name(path)
    return Corpus(name, sha256, vocabulary, parts["train"], parts["validation"], test, documents, ends)


def _of_documents(
    source: Source,
    tokenizer: Encoding,
    cache_dir: Path,
    observed_only: bool,
    places: Mapping[str, tuple[float, float]],
) -> Corpus:
    """Of each part the documents from one share of their number to another. One alone is cut as a text is."""
    tokens, ends = tokenised(source, tokenizer, cache_dir)
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        vocabulary = Vocabulary(tokenizer, observed_ids(tokens))
        file = source.in_cache(cache_dir, tokenizer, "observed")
        tokens = _renumbered(tokens, vocabulary, file, smallest_type(vocabulary.size))
    ending = len(end_token(tokenizer))

    def part(begin: float, end: float) -> tuple[Tensor, Tensor]:
        """Its tokens, without the end-of-text token of its last document, after which there is none; and the ends."""
        if len(ends) == 1:
            length = len(tokens) - ending
            return tokens[int(begin * length) : int(end * length)], ends[:0]
        first, stop = (int(share * len(ends) + 1e-9) for share in (begin, end))  # 1 - 0.1 - 0.8 of ten is one
        start = int(ends[first - 1]) if first else 0
        return tokens[start : max(start, int(ends[stop - 1]) - ending if stop else 0)], ends[first:stop] - start

    parts = {name: part(*place) for name, place in places.items()}
    all_tokens, all_ends = ({name: part[which] for name, part in parts.items()} for which in (0, 1))
    name = text_name(source.path)
    return Corpus(name, source.sha256, vocabulary, **all_tokens, documents=len(ends), ends=all_ends)


def _renumbered(tokens: Tensor, vocabulary: Vocabulary, file: Path, dtype: torch.dtype = torch.int32) -> Tensor:
    """The tokens as ids of the vocabulary, kept in a file."""

    def make(growing: GrowingFiles) -> None:
        for piece in tokens.split(_PIECE):
            growing.append("tokens", vocabulary.narrow(piece).to(dtype).numpy().tobytes())

    return read_or_make({"tokens": (file, dtype)}, make)[0]


def _make_part(path: str, sha256: str, tokenizer: Encoding, begin: float, end: float, growing: GrowingFiles) -> None:
    """Writes the tokens of the text from one share of its characters to another, as int32."""
    binary = isinstance(tokenizer, Bytes)
    total = sum(len(piece) for piece in _pieces(path, sha256, binary))
    if total == 0:
        raise SettingError("path", path, "the text is empty")
    start, stop = int(begin * total), int(end * total)
    pieces = _cut(_between(_pieces(path, sha256, binary), start, stop), tokenizer)
    encoded = in_order(partial(_encoded, tokenizer), islice(pieces, growing.read, None))
    write_all(growing, encoded, torch.int32, stop - start, " characters")


def _pieces(path: str, sha256: str, binary: bool = False) -> Iterator[str]:
    """The text in pieces of up to _PIECE characters; an empty piece stands between two files. binary: anything is a
    text, and each byte that is no UTF-8 a character.

    Raises SettingError for what is no text; and at the end, where the bytes read are not those with that sha256.
    """
    hashes = []
    for number, file in enumerate(find_files(path)):
        if number:
            yield ""
        digest = hashlib.sha256()
        # Of a text, a BOM is dropped.
        decode = codecs.getincrementaldecoder("utf-8" if binary else "utf-8-sig")
        decoder = decode("surrogateescape" if binary else "strict")
        try:
            with file.open("rb") as opened:
                while block := opened.read(_PIECE):
                    digest.update(block)
                    if piece := decoder.decode(block):
                        if "\0" in piece and not binary:
                            raise SettingError("path", path, f"{file} is not a text, it contains null bytes")
                        yield piece
            if rest := decoder.decode(b"", final=True):  # of a character that the file leaves unfinished
                yield rest
        except UnicodeDecodeError as error:
            problem = f"{file} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); convert it to UTF-8 first"
            raise SettingError("path", path, problem) from error
        except OSError as error:
            raise SettingError("path", path, f"{file} can't be read: {error.strerror}") from error
        hashes.append(digest.hexdigest())
    if joined_sha256(hashes) != sha256:
        raise SettingError("path", path, "the text changed while it was read; start again once it is complete")


def _between(pieces: Iterator[str], start: int, stop: int) -> Iterator[str]:
    """The characters start..stop-1 of the pieces, and the empty pieces among them. All pieces are read, to the end,
    where the text is verified."""
    position = 0
    for piece in pieces:
        inside = piece[max(start - position, 0) : max(stop - position, 0)]
        if inside or (not piece and start < position < stop):
            yield inside
        position += len(piece)


class _Piece(NamedTuple):
    """A part of a text that can be tokenised by itself; file_ends: whether another file follows it; place: characters
    up to its end."""

    text: str
    file_ends: bool
    place: int


def _cut(pieces: Iterator[str], tokenizer: Encoding) -> Iterator[_Piece]:
    """The text of the pieces, an empty one of which ends a file, in parts of about their length."""
    rest, place = "", 0
    for piece in pieces:
        rest += piece
        place += len(piece)
        if not piece:
            yield _Piece(rest, True, place)
            rest = ""
        elif cut := _last_cut(tokenizer, rest, since=len(rest) - len(piece)):
            yield _Piece(rest[:cut], False, place)
            rest = rest[cut:]
    yield _Piece(rest, False, place)


def _encoded(tokenizer: Encoding, piece: _Piece) -> Encoded:
    """With the end-of-text token where a file ends, and that place."""
    tokens = encode(tokenizer, piece.text)
    if piece.file_ends:
        tokens = np.concatenate([tokens, end_token(tokenizer)])
    return Encoded(tokens, np.array([len(tokens)] if piece.file_ends else []), piece.place)


def _last_cut(tokenizer: Encoding, text: str, since: int) -> int:
    return _last_safe_cut(text, since) if isinstance(tokenizer, tiktoken.Encoding) else len(text)


def _last_safe_cut(text: str, since: int) -> int:
    """The last place at or after `since` where the text may be cut; 0 if there is none."""
    for end in range(len(text), max(since, 1), -1000):
        cuts = [match.end() for match in _SAFE_CUT.finditer(text, max(end - 1001, since, 0), end)]
        if cuts:
            return cuts[-1]
    return 0
