"""The tokens of corpora that are documents, or tokens that others made: all in one file, and in another one where each
document ends in them.

A document is tokenised as it would be alone, and the end-of-text token, where the encoding has one, follows it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poslab.config.files import Kind, fingerprint
from poslab.data.documents import read_documents
from poslab.data.token_cache import Encoded, encode, end_token, in_order, read_or_make, write_all
from poslab.data.token_files import GrowingFiles
from poslab.data.token_stream import read_tokens_of
from poslab.data.tokenizer import Encoding, end_of_text
from poslab.errors import SettingError

_LAYOUT = "documents 2"  # part of every cache key; another number wherever the same corpus would give other files
_PIECE = 1 << 20  # characters at a time


@dataclass(frozen=True)
class Source:
    """Files that hold a corpus, and the `fingerprint` of what they held when they were looked at."""

    path: str
    files: Sequence[Path]
    kind: Kind
    column: str
    sha256: str

    def in_cache(self, cache_dir: Path, tokenizer: Encoding, what: str) -> Path:
        content = f"{_LAYOUT} {self.kind.value} {self.column} {tokenizer.name} {self.sha256}"
        return cache_dir / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.{what}"


class _Piece(NamedTuple):
    """Some documents, and how many bytes of all files were read with them."""

    documents: list[str]
    place: int


def smallest_type(vocabulary_size: int) -> torch.dtype:
    return torch.uint16 if vocabulary_size <= 1 << 16 else torch.int32


def tokenised(source: Source, tokenizer: Encoding, cache_dir: Path) -> tuple[Tensor, Tensor]:
    """All tokens of a corpus (N,), of `smallest_type`, and where its documents end in them: int64 (documents,).

    Raises SettingError for files that can't be read, or change meanwhile, UserError where the cache can't be written.
    """
    dtype = smallest_type(tokenizer.n_vocab)

    def make(growing: GrowingFiles) -> None:
        total = sum(file.stat().st_size for file in source.files)
        write_all(growing, _encoded(source, tokenizer, growing.read), dtype, total, "B")
        if not growing.items("tokens"):
            raise SettingError("path", source.path, "the text is empty")
        if fingerprint(source.path) != source.sha256:
            problem = "the text changed while it was read; start again once it is complete"
            raise SettingError("path", source.path, problem)

    types = {"tokens": dtype, "ends": torch.int64}
    files = {what: (source.in_cache(cache_dir, tokenizer, what), types[what]) for what in types}
    tokens, ends = read_or_make(files, make)
    return tokens, ends


def _encoded(source: Source, tokenizer: Encoding, start: int) -> Iterator[Encoded]:
    """All pieces from a number on."""
    if source.kind is Kind.TOKENS:
        return islice(_stream(source, tokenizer), start, None)
    return in_order(partial(_encode_all, tokenizer), islice(_pieces(source), start, None))


def _stream(source: Source, tokenizer: Encoding) -> Iterator[Encoded]:
    """Tokens as they are in files, but that one end-of-text token follows each document, and none stands before the
    first."""
    ending = end_of_text(tokenizer)
    before, ended = 0, True  # bytes of the files before, and whether no document is under way
    for file in source.files:
        for tokens, place in read_tokens_of(source.path, file, tokenizer.n_vocab, tokenizer.name):
            is_end = tokens == ending
            repeated = is_end & np.concatenate(([ended], is_end[:-1]))
            ended = bool(is_end[-1])
            tokens = tokens[~repeated]
            yield Encoded(tokens, np.flatnonzero(tokens == ending) + 1, before + place)
        before += file.stat().st_size
    if not ended:
        last = end_token(tokenizer)
        yield Encoded(last, np.array([len(last)]), before)


def _pieces(source: Source) -> Iterator[_Piece]:
    """The documents of all files, as many at a time as have about _PIECE characters; the same ones each time."""
    before = 0
    for file in source.files:
        documents, length = [], 0
        for text, place in read_documents(source.path, file, source.column):
            documents.append(text)
            length += len(text)
            if length >= _PIECE:
                yield _Piece(documents, before + place)
                documents, length = [], 0
        before += file.stat().st_size
        if documents:
            yield _Piece(documents, before)


def _encode_all(tokenizer: Encoding, piece: _Piece) -> Encoded:
    last = end_token(tokenizer)
    tokens = [np.concatenate([encode(tokenizer, text), last]) for text in piece.documents]
    return Encoded(np.concatenate(tokens), np.cumsum([len(some) for some in tokens]), piece.place)
