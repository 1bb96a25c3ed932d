"""Corpora as arrays of token ids: a text or documents, with parts to train on, to validate and to test.

Both go the same way: read in pieces (pieces.py), tokenised on all processors into one file of tokens and one of the
ends of documents (token_cache.py), memory-mapped, and cut into parts.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poslab.config.files import Kind, default_cache_dir, find_files, fingerprint, kind_of, text_name
from poslab.config.schema import DataConfig
from poslab.data.pieces import Encoded, Piece, Source, document_pieces, read_text, text_pieces
from poslab.data.token_cache import GrowingFiles, in_order, read_or_make, write_all
from poslab.data.token_stream import read_token_files
from poslab.data.tokenizer import Bytes, Encoding, Vocabulary, encode, end_token, load_tokenizer, observed_ids
from poslab.errors import SettingError

_LAYOUT = "4"  # part of every cache key; another number wherever the same corpus would give other files
_BLOCK = 1 << 20  # tokens renumbered at a time


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


def corpus_of(config: DataConfig) -> Corpus:
    """Return the text of a run. Raises as `load_corpus` does, by the names of settings on the command line."""
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
    """Return the text at `path`, tokenised now or before. The end-of-text token, where the encoding has one, stands
    between documents, and between the files of a folder or glob, but never between parts.

    A text is cut into parts by its characters, before it is tokenised; documents by their number, a single one by its
    tokens. observed_only: renumber the ids that occur, of all parts together. Raises SettingError
    for a text that is missing, empty, not UTF-8 or changing, UserError where the cache can't be written.
    """
    sha256, files = fingerprint(path), find_files(path)
    source = Source(path, files, kind_of(path, files, tokenizer.name), column, sha256)
    shares = (1 - split.test - split.validation, 1 - split.test, 1)  # up to which a part goes
    tokens, ends, *of_text = _tokenised(source, tokenizer, shares, cache_dir)
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        vocabulary = Vocabulary(tokenizer, observed_ids(tokens))
        tokens = _renumbered(tokens, vocabulary, _cache_file(cache_dir, source, tokenizer, shares, "observed"))
    ending = len(end_token(tokenizer))
    documents: int | None
    if of_text:
        documents, bounds = len(files) if len(files) > 1 else None, list(pairwise([0, *of_text[0].tolist()]))
    else:
        documents, bounds = len(ends), _parts(len(tokens), ends, shares, ending)
    train, validation, test = (tokens[start:stop] for start, stop in bounds)
    ends_of = [_ends_within(ends, start, stop + ending) for start, stop in bounds]
    by_part = dict(zip(("train", "validation", "test"), ends_of, strict=True))
    return Corpus(text_name(path), sha256, vocabulary, train, validation, test, documents, by_part)


def _parts(tokens: int, ends: Tensor, shares: Sequence[float], ending: int) -> list[tuple[int, int]]:
    """Return where the parts of a corpus begin and end in its tokens, if each has a share of the documents; the
    `ending` tokens after the last document of a part, which part it from the next, are in none."""
    if len(ends) == 1:
        return list(pairwise([0, *(int(share * (tokens - ending)) for share in shares)]))
    documents = [0, *(int(share * len(ends) + 1e-9) for share in shares)]  # 1 - 0.1 - 0.8 of ten is one
    bounds = [int(ends[number - 1]) if number else 0 for number in documents]
    return [(start, max(start, stop - ending)) for start, stop in pairwise(bounds)]


def _ends_within(ends: Tensor, start: int, stop: int) -> Tensor:
    """Return those of the ascending ends after `start` and up to `stop`, counted from `start`."""
    first, last = torch.searchsorted(ends, torch.tensor([start, stop]), right=True).tolist()
    return ends[first:last] - start


def _cache_file(cache_dir: Path, source: Source, tokenizer: Encoding, shares: Sequence[float], content: str) -> Path:
    cuts = shares if source.kind is Kind.TEXT else ""  # documents are cut after they are tokenised
    key = f"{_LAYOUT} {source.kind.value} {source.column} {cuts} {tokenizer.name} {source.sha256}"
    return cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.{content}"


def _tokenised(source: Source, tokenizer: Encoding, shares: Sequence[float], cache_dir: Path) -> list[Tensor]:
    """Return all tokens (N,), of the smallest type that holds them, and where documents end in them, int64; of a text
    also where its parts end, int64 (3,).

    Raises SettingError for files that can't be read, or change meanwhile, UserError where the cache can't be written.
    """
    types = {"tokens": _smallest_type(tokenizer.n_vocab), "ends": torch.int64}
    if source.kind is Kind.TEXT:
        types["parts"] = torch.int64
    files = {name: (_cache_file(cache_dir, source, tokenizer, shares, name), dtype) for name, dtype in types.items()}
    return read_or_make(files, partial(_tokenise, source, tokenizer, shares))


def _tokenise(source: Source, tokenizer: Encoding, shares: Sequence[float], growing: GrowingFiles) -> None:
    """Write the tokens of a corpus, from where `growing` was saved on."""
    if source.kind is Kind.TEXT:
        total, unit = sum(map(len, read_text(source, isinstance(tokenizer, Bytes)))), " characters"
        pieces = text_pieces(source, tokenizer, [int(share * total) for share in shares])
    else:
        total, unit = sum(file.stat().st_size for file in source.files), "B"
        pieces = document_pieces(source)
    encoded: Iterator[Encoded]
    if source.kind is Kind.TOKENS:
        encoded = islice(read_token_files(source, tokenizer), growing.read, None)
    else:
        encoded = in_order(partial(encode_piece, tokenizer), islice(pieces, growing.read, None))
    write_all(growing, encoded, total, unit)
    if not growing.items("tokens"):
        raise SettingError("path", source.path, "the text is empty")
    if fingerprint(source.path) != source.sha256:
        problem = "the text changed while it was read; start again once it is complete"
        raise SettingError("path", source.path, problem)


def encode_piece(tokenizer: Encoding, piece: Piece) -> Encoded:
    """Return the tokens of a piece, the end-of-text token after each document, and where those end."""
    last = end_token(tokenizer) if piece.document_ends else np.array([], np.uint32)
    tokens = [np.concatenate([encode(tokenizer, text), last]) for text in piece.texts]
    ends = np.cumsum([len(some) for some in tokens]) if piece.document_ends else np.array([])
    return Encoded(np.concatenate(tokens), ends, piece.read, piece.part_ends)


def _renumbered(tokens: Tensor, vocabulary: Vocabulary, file: Path) -> Tensor:
    """Return the tokens as ids of the vocabulary, kept in a file."""

    def make(growing: GrowingFiles) -> None:
        for piece in tokens.split(_BLOCK):
            growing.append("tokens", vocabulary.narrow(piece).numpy())

    return read_or_make({"tokens": (file, _smallest_type(vocabulary.size))}, make)[0]


def _smallest_type(vocabulary_size: int) -> torch.dtype:
    return torch.uint16 if vocabulary_size <= 1 << 16 else torch.int32
