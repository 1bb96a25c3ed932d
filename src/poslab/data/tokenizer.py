"""Encodings by name: tiktoken's, of which "gpt2" comes from the vocabulary in data/ and never touches the network, and
two whose tokens are the characters and the bytes of a text."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar
from unittest.mock import patch

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import ENDOFTEXT, r50k_pat_str

from poslab.config.files import BUNDLED_DATA
from poslab.config.schema import check_encoding
from poslab.errors import SettingError

# The hashes that tiktoken itself checks.
_VOCAB_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"

GPT2_FILES = (BUNDLED_DATA / "gpt2" / "encoder.json", BUNDLED_DATA / "gpt2" / "vocab.bpe")  # token ids, and merges


@dataclass(frozen=True)
class Characters:
    """Encoding whose tokens are characters: their code points. A model has those that occur in its text, in that
    order."""

    name: ClassVar[str] = "characters"
    unit: ClassVar[str] = "character"
    n_vocab: ClassVar[int] = sys.maxunicode + 1

    def encode_ordinary(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return "".join(map(chr, tokens)).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Bytes:
    """Encoding whose tokens are bytes, of any file. Bytes that are no UTF-8 stand in a str as Python's command line has
    it (PEP 383)."""

    name: ClassVar[str] = "bytes"
    unit: ClassVar[str] = "byte"
    n_vocab: ClassVar[int] = 256

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return bytes(tokens)


Encoding = tiktoken.Encoding | Characters | Bytes


def end_of_text(encoding: Encoding) -> int | None:
    """Return the token <|endoftext|>, which only tiktoken's encodings may have."""
    if isinstance(encoding, tiktoken.Encoding) and ENDOFTEXT in encoding.special_tokens_set:
        return encoding.eot_token
    return None


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
        problem = (
            "tiktoken could not download its vocabulary, and its cache (TIKTOKEN_CACHE_DIR) has none; offline: gpt2"
        )
        raise SettingError("encoding", encoding, problem) from error


@cache  # parsing the files takes 0.2 s
def _bundled_gpt2() -> tiktoken.Encoding:
    tokens, merges = GPT2_FILES
    try:
        with patch.dict(os.environ, TIKTOKEN_CACHE_DIR=""):  # or it would keep copies of the files
            ranks = data_gym_to_mergeable_bpe_ranks(
                vocab_bpe_file=str(merges),
                encoder_json_file=str(tokens),
                vocab_bpe_hash=_VOCAB_SHA256,
                encoder_json_hash=_ENCODER_SHA256,
            )
    except (OSError, ValueError) as error:
        problem = f"its vocabulary in {tokens.parent} is missing or changed; restore vocab.bpe and encoder.json"
        raise SettingError("encoding", "gpt2", problem) from error
    return tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={ENDOFTEXT: len(ranks)}
    )
