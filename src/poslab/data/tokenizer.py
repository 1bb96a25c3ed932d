"""tiktoken encodings by name; "gpt2" comes from the vocabulary in data/ and never touches the network."""

import os
from functools import cache
from unittest.mock import patch

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import ENDOFTEXT, r50k_pat_str

from poslab.errors import SettingError
from poslab.settings.files import BUNDLED_DATA
from poslab.settings.train import check_encoding

# The hashes that tiktoken itself checks.
_VOCAB_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"


def load_tokenizer(encoding: str) -> tiktoken.Encoding:
    """The encoding of that name. Raises SettingError if there is none, or its vocabulary can't be had."""
    check_encoding(encoding)
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
    folder = BUNDLED_DATA / "gpt2"
    try:
        with patch.dict(os.environ, TIKTOKEN_CACHE_DIR=""):  # or it would keep copies of the files
            ranks = data_gym_to_mergeable_bpe_ranks(
                vocab_bpe_file=str(folder / "vocab.bpe"),
                encoder_json_file=str(folder / "encoder.json"),
                vocab_bpe_hash=_VOCAB_SHA256,
                encoder_json_hash=_ENCODER_SHA256,
            )
    except (OSError, ValueError) as error:
        problem = f"its vocabulary in {folder} is missing or changed; restore vocab.bpe and encoder.json"
        raise SettingError("encoding", "gpt2", problem) from error
    return tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={ENDOFTEXT: len(ranks)}
    )
