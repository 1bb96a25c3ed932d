"""Tokens that other trainers wrote: nanoGPT's and llm.c's, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import tiktoken
from corpora import DOCUMENTS, joined, llm_c
from poslab.data.token_stream import read_tokens_of

from poslab.data.corpus import load_corpus
from poslab.errors import SettingError


@pytest.mark.parametrize("length", [1, 7, 1 << 20])
def test_tokens_of_nanogpt_and_llm_c(
    length: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nanoGPT ends a document by the end-of-text token; llm.c begins it so, and continues it in the next file."""
    monkeypatch.setattr("poslab.data.token_stream._TOKENS", length)
    expected = joined(DOCUMENTS, gpt2)
    by_nanogpt = [*expected, gpt2.eot_token]
    by_llm_c = [gpt2.eot_token, *expected]
    (tmp_path / "nanogpt.bin").write_bytes(np.array(by_nanogpt, "<u2").tobytes())
    (tmp_path / "llama.bin").write_bytes(llm_c(by_llm_c, 20240801, 7, "<u4"))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "000.bin").write_bytes(llm_c(by_llm_c[:50]))
    (tmp_path / "shards" / "001.bin").write_bytes(llm_c(by_llm_c[50:]))
    for name in ("nanogpt.bin", "llama.bin", "shards"):
        loaded = load_corpus(str(tmp_path / name), gpt2, tmp_path / "cache")
        assert loaded.documents == 30
        assert loaded.train.tolist() == joined(DOCUMENTS[:27], gpt2)
        assert loaded.validation.tolist() == joined(DOCUMENTS[27:], gpt2)


@pytest.mark.parametrize(("dtype", "encoding"), [("<u4", "gpt2"), ("<i8", "gpt2"), ("<u4", "o200k_base")])
def test_wider_tokens_are_told_from_those_of_nanogpt(dtype: str, encoding: str, tmp_path: Path) -> None:
    """Every other number of 16 bits is small by chance only where they are few."""
    vocabulary_size = {"gpt2": 50257, "o200k_base": 200019}[encoding]

    def read(tokens: np.ndarray) -> list[int]:
        tokens.tofile(tmp_path / "c.bin")
        pieces = read_tokens_of("c.bin", tmp_path / "c.bin", vocabulary_size, encoding)
        return [token for piece, _ in pieces for token in piece.tolist()]

    ids = np.random.default_rng(1).integers(vocabulary_size, size=1000)
    with pytest.raises(SettingError, match="seems to hold tokens of 32 or 64 bits"):
        read(ids.astype(dtype))
    assert len(read((ids % 50257).astype("<u2"))) == 1000
    assert read(np.array([17, 0] * 7, "<u2")) == [17, 0] * 7
