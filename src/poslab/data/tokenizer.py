"""Encodings and vocabularies: text to token ids, and the ids that a model reads and predicts.

Encodings are tiktoken's, of which "gpt2" comes from the vocabulary in data/ and never touches the network, and two
whose tokens are the characters and the bytes of a text.

A vocabulary is all of an encoding's ids, or those that occur in the text: with fewer, the same experiment takes a
fraction of the time, most of which goes into the head. Losses of two vocabularies can't be compared.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import tiktoken
import torch
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import ENDOFTEXT, r50k_pat_str
from torch import Tensor

from poslab.config.files import BUNDLED_DATA
from poslab.config.schema import check_encoding
from poslab.errors import SettingError, suggestion
from poslab.processors import available

# The hashes that tiktoken itself checks.
_VOCAB_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"

GPT2_FILES = (BUNDLED_DATA / "gpt2" / "encoder.json", BUNDLED_DATA / "gpt2" / "vocab.bpe")  # token ids, and merges


@dataclass(frozen=True)
class Characters:
    """Encoding whose tokens are characters: their code points. A model has those of its text, in that order."""

    name: ClassVar[str] = "characters"
    unit: ClassVar[str] = "character"
    n_vocab: ClassVar[int] = sys.maxunicode + 1

    def encode_ordinary(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return "".join(map(chr, tokens)).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Bytes:
    """Encoding whose tokens are bytes, of any file. Bytes that are no UTF-8 stand in a str as by PEP 383."""

    name: ClassVar[str] = "bytes"
    unit: ClassVar[str] = "byte"
    n_vocab: ClassVar[int] = 256

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return bytes(tokens)


Encoding = tiktoken.Encoding | Characters | Bytes
Array = np.ndarray[Any, Any]


def end_of_text(encoding: Encoding) -> int | None:
    """Return the token <|endoftext|>, which only tiktoken's encodings may have."""
    if isinstance(encoding, tiktoken.Encoding) and ENDOFTEXT in encoding.special_tokens_set:
        return encoding.eot_token
    return None


def encode(tokenizer: Encoding, text: str) -> Array:
    """Return the tokens of a text, as encode_ordinary does, uint32 (N,); a list would keep other threads waiting."""
    if isinstance(tokenizer, tiktoken.Encoding):
        return tokenizer.encode_to_numpy(text, disallowed_special=())
    return np.array(tokenizer.encode_ordinary(text), np.uint32)


def encode_batch(tokenizer: Encoding, texts: Sequence[str]) -> list[Array]:
    """Return the tokens of each text, uint32 (N,), computed on all processors by tiktoken's encodings."""
    threads = available() if isinstance(tokenizer, tiktoken.Encoding) else 1
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(partial(encode, tokenizer), texts))


def end_token(tokenizer: Encoding) -> Array:
    """Return the end-of-text token, uint32 (1,); (0,) where the encoding has none."""
    ending = end_of_text(tokenizer)
    return np.array([] if ending is None else [ending], np.uint32)


def load_tokenizer(encoding: str) -> Encoding:
    """Return the encoding of that name. Raises SettingError if there is none, or its vocabulary can't be had."""
    check_encoding(encoding)
    for own in (Characters, Bytes):
        if encoding == own.name:
            return own()
    if encoding == "gpt2":
        return _bundled_gpt2()
    try:
        return tiktoken.get_encoding(encoding)
    except (OSError, ValueError) as error:  # no network and an empty cache, or a broken download
        problem = "tiktoken could not download its vocabulary, and TIKTOKEN_CACHE_DIR has none; offline: gpt2"
        raise SettingError("encoding", encoding, problem) from error


@cache  # parsing the files takes 0.2 s
def _bundled_gpt2() -> tiktoken.Encoding:
    tokens, merges = GPT2_FILES
    try:
        with patch.dict(os.environ, TIKTOKEN_CACHE_DIR=""):  # or it would keep copies of the files
            ranks = data_gym_to_mergeable_bpe_ranks(str(merges), str(tokens), _VOCAB_SHA256, _ENCODER_SHA256)
    except (OSError, ValueError) as error:
        problem = f"its vocabulary in {tokens.parent} is missing or changed; restore vocab.bpe and encoder.json"
        raise SettingError("encoding", "gpt2", problem) from error
    special = {ENDOFTEXT: len(ranks)}
    return tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Encoding whose token `observed[i]` has id i; `observed` (V,) is int32 and ascending, None for all tokens."""

    encoding: Encoding
    observed: Tensor | None = None

    @property
    def name(self) -> str:
        return "full" if self.observed is None else "observed"

    @property
    def size(self) -> int:
        return self.encoding.n_vocab if self.observed is None else len(self.observed)

    @property
    def unit(self) -> str:
        """Return the name of a token of this encoding."""
        return getattr(self.encoding, "unit", "token")

    def encode(self, text: str, option: str = "text") -> list[int]:
        """Return the ids of a text, in which <|endoftext|> is text like any other.

        Raises SettingError, under the name `option`, for a text with tokens that the vocabulary doesn't have.
        """
        tokens = torch.tensor(self.encoding.encode_ordinary(text), dtype=torch.int32)
        return self.narrow(tokens, option, text).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the tokens in UTF-8; one by itself may be a part of a character only. Raises SettingError
        for ids that the vocabulary doesn't have."""
        if not all(0 <= i < self.size for i in ids):
            raise SettingError("ids", "[...]", f"must be from 0 to {self.size - 1}")
        tokens = list(ids) if self.observed is None else self.observed[list(ids)].tolist()
        return self.encoding.decode_bytes(tokens)

    @property
    def end_of_text(self) -> int | None:
        """Return the id of <|endoftext|>; None where the encoding, or the text whose ids are observed, has none."""
        token = end_of_text(self.encoding)
        if token is None or self.observed is None:
            return token
        ids = (self.observed == token).nonzero().flatten().tolist()
        return ids[0] if ids else None

    def narrow(self, tokens: Tensor, option: str = "text", value: str = "...") -> Tensor:
        """Return the encoding's ids (N,), int32 or uint16, as ids of this vocabulary, int32. Raises SettingError for
        `option` and its `value` where the vocabulary doesn't have them all."""
        if self.observed is None:
            return tokens
        tokens = tokens.to(torch.int32)
        ids = torch.searchsorted(self.observed, tokens.contiguous(), out_int32=True)
        is_known = self.observed[ids.clamp(max=self.size - 1)] == tokens
        if not is_known.all():
            unknown = self.encoding.decode_bytes(tokens[~is_known][:10].tolist()).decode("utf-8", errors="replace")
            trained_on = f"{self.size:,} {self.unit}s of the text it was trained on"
            problem = f"the model knows only the {trained_on}, not {unknown!r}"
            raise SettingError(option, value, problem)
        return ids


@dataclass(frozen=True, eq=False)
class Symbols:
    """Vocabulary of a task: text is the names of its symbols, with spaces between them."""

    symbols: tuple[str, ...]

    name: ClassVar[str] = "symbols"
    observed: ClassVar[None] = None

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str, option: str = "text") -> list[int]:
        """Return the ids of a text. Raises SettingError, under the name `option`, for a name that no symbol has."""
        ids = {symbol: number for number, symbol in enumerate(self.symbols)}
        for word in text.split():
            if word not in ids:
                meant = suggestion(word, self.symbols)
                raise SettingError(option, text, f"{word} is no symbol; separate symbols by spaces; {meant}")
        return [ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.symbols[i] for i in ids)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return the names in UTF-8, with a space after each, so that pieces can be put together."""
        return "".join(f"{self.symbols[i]} " for i in ids).encode()

    @property
    def end_of_text(self) -> int | None:
        return self.symbols.index("EOS") if "EOS" in self.symbols else None


AnyVocabulary = Vocabulary | Symbols


def tokens_of(vocabulary: AnyVocabulary) -> Any:
    """Return what vocabularies have in common whose ids mean the same."""
    if isinstance(vocabulary, Symbols):
        return vocabulary.symbols
    return vocabulary.encoding.name, None if vocabulary.observed is None else vocabulary.observed.tolist()


def observed_ids(tokens: Tensor) -> Tensor:
    """Return the ids that occur in the tokens (N,): (V,) int32, ascending."""
    present = np.zeros(1 + int(tokens.numpy().max(initial=0)), bool)
    for piece in tokens.split(1 << 20):  # views, as an index is copied
        present[piece.numpy()] = True
    return torch.from_numpy(present.nonzero()[0].astype(np.int32))
