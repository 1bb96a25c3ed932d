"""A vocabulary as files from which transformers makes its tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

from tiktoken_ext.openai_public import ENDOFTEXT

from poslab.data.tokenizer import GPT2_FILES, AnyVocabulary, Bytes, Characters, Symbols

# In GPT-2's files a byte is a character that can be seen; for those that can't be seen these begin at 256.
_SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_OF = {chr(byte): byte for byte in _SEEN}
BYTE_OF |= {chr(256 + n): byte for n, byte in enumerate(byte for byte in range(256) if byte not in _SEEN)}


def write_tokenizer(vocabulary: AnyVocabulary, folder: Path, context_length: int) -> bool:
    """Write the tokenizer's files, and return whether there is one; without, transformers refuses to make any."""
    settings: dict[str, Any] = {"tokenizer_class": "NoTokenizer"}
    if not isinstance(vocabulary, Symbols) and vocabulary.observed is None and vocabulary.encoding.name == "gpt2":
        for name, file in zip(("vocab.json", "merges.txt"), GPT2_FILES, strict=True):
            shutil.copyfile(file, folder / name)
        special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), ENDOFTEXT)
        settings = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": context_length, **special}
    elif content := _each_token_by_itself(vocabulary):
        (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], **content}) + "\n")
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context_length}
        settings["clean_up_tokenization_spaces"] = False
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return settings["tokenizer_class"] != "NoTokenizer"


def _each_token_by_itself(vocabulary: AnyVocabulary) -> dict[str, Any] | None:
    """Return the tokenizer.json of a vocabulary of bytes, characters or symbols, which refuses other ones; None of any
    other vocabulary."""
    each: dict[str, Any] = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    decoder: dict[str, Any] | None = {"type": "Fuse"}
    if isinstance(vocabulary, Symbols):
        tokens, each, decoder = list(vocabulary.symbols), {"type": "WhitespaceSplit"}, None
    elif isinstance(vocabulary.encoding, Characters) and vocabulary.observed is not None:
        tokens = list(map(chr, vocabulary.observed.tolist()))
    elif isinstance(vocabulary.encoding, Bytes):
        characters = {byte: character for character, byte in BYTE_OF.items()}
        observed = range(256) if vocabulary.observed is None else vocabulary.observed.tolist()
        tokens = [characters[byte] for byte in observed]
        decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        each = {"type": "Sequence", "pretokenizers": [decoder, each]}
    else:
        return None
    ids = {token: number for number, token in enumerate(tokens)}
    model = {"type": "WordLevel", "vocab": ids, "unk_token": "<unknown>"}  # which is none of them, and so an error
    return {"pre_tokenizer": each, "decoder": decoder, "model": model}
