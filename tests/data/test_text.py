"""Texts are cut only where their tokens stay the same, and .bin files of other trainers are read as what they hold."""

import gzip
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import regex
import tiktoken
from corpora import DOCUMENTS, joined, llm_c
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from poslab.config.corpora import check_corpus
from poslab.config.schema import DataConfig
from poslab.data import text as text_files
from poslab.data.corpus import corpus_of, load_corpus
from poslab.data.text import last_safe_cut, read_text, text_pieces
from poslab.data.tokenizer import Bytes, Characters, load_tokenizer
from poslab.errors import SettingError, UserError


def tiktoken_patterns() -> list[str]:
    """Return the pattern of every encoding in tiktoken's own definitions, without their vocabularies."""
    nothing = mock.Mock(return_value={})
    with mock.patch.multiple(openai_public, load_tiktoken_bpe=nothing, data_gym_to_mergeable_bpe_ranks=nothing):
        return sorted({make()["pat_str"] for make in openai_public.ENCODING_CONSTRUCTORS.values()})


TRICKY = [
    "plain words, and punctuation!\n\nNew paragraph...\n",
    "  leading and trailing   spaces   \n\t\n  x\r\nCRLF\r\n\r\nold Macs\r",
    "control characters\x01\x1b[31m\x7f\u2028\u200b\ufeff" * 9,
    "numbers 1234567 and 12 34\nemoji 😀 👨‍👩‍👧 العربية עברית 漢字かな。\n次の行\n",
    "don't we've I'M they'LL <|endoftext|> _under_score_ a_\nb",
    "x" * 50 + " " * 30 + "\n" * 7 + "y",
    "aaaa" * 40,
    "x" * 300 + "é" * 300,
]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("text", ["".join(TRICKY) * 3, *TRICKY], ids=lambda text: repr(text[:10]))
def test_reading_in_pieces_changes_nothing(
    text: str, piece: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "_PIECE", piece)
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    cut = int(0.9 * len(text))
    for tokenizer in (gpt2, Characters(), Bytes()):
        loaded = load_corpus(str(file), tokenizer, tmp_path / "cache")
        assert loaded.train.tolist() == tokenizer.encode_ordinary(text[:cut])
        assert loaded.validation.tolist() == tokenizer.encode_ordinary(text[cut:])
    assert (loaded.documents, len(loaded.ends["train"])) == (None, 0)


@given(
    text=st.text(st.sampled_from("ab1 \n\r\t.,'é漢_\u00a0\u0301"), min_size=1, max_size=60),
    piece=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 60), max_size=2),
)
@settings(max_examples=200, deadline=None)
def test_pieces_of_random_text(text: str, piece: int, cuts: list[int]) -> None:
    gpt2 = load_tokenizer("gpt2")
    blocks = [text[start : start + piece] for start in range(0, len(text), piece)]
    for start, stop in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]):
        with mock.patch.object(text_files, "read_text", return_value=blocks):
            pieces = list(text_pieces("", [Path()], gpt2, start, stop))
        tokens = [token for found in pieces for token in found.tokens.tolist()]
        assert tokens == gpt2.encode_ordinary(text[start:stop])


@pytest.mark.parametrize("line", ["これは文です。\n", "foo(bar);\n", "“Yes!”\n", "a\r\n"])
def test_no_line_is_too_odd_to_cut_after(line: str) -> None:
    """Guard against a long text in one piece, in memory."""
    text = line * 1000
    assert last_safe_cut(text, since=0) > len(text) - 3 * len(line)


@given(
    text=st.text(st.sampled_from("ab1 \n\r\t.,'(;/。é漢字_\u00a0“"), min_size=1, max_size=60),
    encoding=st.sampled_from(tiktoken_patterns()),
)
@settings(max_examples=400, deadline=None)
def test_cuts_are_word_boundaries_of_every_encoding(text: str, encoding: str) -> None:
    """Patterns alone are tried: vocabularies other than gpt2's are not here."""
    whole = regex.findall(encoding, text)
    starts = {sum(map(len, whole[:i])) for i in range(len(whole) + 1)}
    for cut in (match.end() for match in text_files._SAFE_CUT.finditer(text)):
        assert cut in starts
        assert [*regex.findall(encoding, text[:cut]), *regex.findall(encoding, text[cut:])] == whole


@pytest.mark.parametrize("content", [bytes(range(256)), b"\xef\xbb\xbfBOM", b"cut \xe6\xbc"])
def test_bytes_are_those_of_the_file(content: bytes, tmp_path: Path) -> None:
    for name in ("binary", "c.bin"):
        (tmp_path / name).write_bytes(content)
        found = load_corpus(str(tmp_path / name), Bytes(), tmp_path / "cache")
        assert found.vocabulary.decode_bytes([*found.train.tolist(), *found.validation.tolist()]) == content


def test_byte_order_mark_is_dropped_and_line_ends_stay(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    content = b"one\r\ntwo\r\nthree\r\nfour\r\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + content))
    for name in ("a.txt", "a.txt.gz"):
        loaded = load_corpus(str(tmp_path / name), gpt2, tmp_path / "cache")
        assert gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()]).encode() == content


@pytest.mark.parametrize("piece", [5, 1 << 20])
def test_a_separator_ends_documents(
    piece: int,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(text_files, "_PIECE", piece)
    stories = [f"Story {number}\n\nof a cat.\n" for number in range(30)]
    (tmp_path / "text.txt").write_text("".join(f"{story}<|endoftext|>\r\n" for story in stories))
    path = str(tmp_path / "text.txt")
    loaded = load_corpus(path, gpt2, tmp_path / "cache", separator="<|endoftext|>")
    assert (loaded.documents, loaded.train.tolist()) == (30, joined(stories[:27], gpt2))
    assert loaded.validation.tolist() == joined(stories[27:], gpt2)
    assert capsys.readouterr().out == ""
    assert gpt2.eot_token not in load_corpus(path, gpt2, tmp_path / "cache").train.tolist()
    assert "text.txt has <|endoftext|> 30 times, read as ordinary text; data.document_separator=" in (
        capsys.readouterr().out
    )


def test_tokens_of_nanogpt_and_llm_c(gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nanoGPT ends a document by the end-of-text token; llm.c begins it so, and continues it in the next file."""
    expected = joined(DOCUMENTS, gpt2)
    by_nanogpt, by_llm_c = [*expected, gpt2.eot_token], [gpt2.eot_token, *expected]
    (tmp_path / "nanogpt.bin").write_bytes(np.array(by_nanogpt, "<u2").tobytes())
    (tmp_path / "wide.bin").write_bytes(np.array(by_nanogpt, "<u4").tobytes())
    (tmp_path / "llama.bin").write_bytes(llm_c(by_llm_c, 20240801, "<u4"))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "000.bin").write_bytes(llm_c(by_llm_c[:50]))
    (tmp_path / "shards" / "001.bin").write_bytes(llm_c(by_llm_c[50:]))
    for length in (1, 7, 1 << 20):
        monkeypatch.setattr(text_files, "_PIECE", length)
        for name, dtype in {"nanogpt.bin": "uint16", "wide.bin": "uint32", "llama.bin": None, "shards": None}.items():
            loaded = load_corpus(str(tmp_path / name), gpt2, tmp_path / f"cache{length}", dtype=dtype)
            assert loaded.documents == 30
            assert loaded.train.tolist() == joined(DOCUMENTS[:27], gpt2)
            assert loaded.validation.tolist() == joined(DOCUMENTS[27:], gpt2)


def test_nanogpt_s_folder_has_two_parts(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    np.arange(100, dtype="<u2").tofile(tmp_path / "train.bin")
    np.arange(20, dtype="<u2").tofile(tmp_path / "val.bin")
    loaded = load_corpus(str(tmp_path), gpt2, tmp_path / "cache", dtype="uint16")
    assert (loaded.train.tolist(), loaded.validation.tolist()) == ([*range(100)], [*range(20)])
    alone = load_corpus(str(tmp_path / "train.bin"), gpt2, tmp_path / "cache", dtype="uint16")
    assert (alone.train.tolist(), alone.validation.tolist()) == ([*range(90)], [*range(90, 100)])
    (tmp_path / "meta.pkl").write_bytes(b"")
    problem = r"val.bin has ids of its own characters, listed in meta.pkl, .*: name its text with data.encoding=charac"
    with pytest.raises(SettingError, match=problem):
        load_corpus(str(tmp_path / "val.bin"), gpt2, tmp_path / "cache")
    (tmp_path / "input.txt").write_text("text")
    for encoding in ("gpt2", "characters"):
        with pytest.raises(SettingError, match=r"input\.txt.*data\.encoding=characters"):
            check_corpus(str(tmp_path / "train.bin"), encoding)


@pytest.mark.parametrize(("name", "advice"), [("a", ".jsonl"), ("a.txt", ".jsonl"), ("a.txt.gz", ".jsonl.gz")])
def test_lines_of_json_in_a_text_are_told(
    name: str, advice: str, gpt2: tiktoken.Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b'{"text": "a story"}\n' * 9
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    load_corpus(str(tmp_path / name), gpt2, tmp_path / "cache")
    told = f"{name} has lines of JSON, read as ordinary text; as a {advice} they would be documents\n"
    assert capsys.readouterr().out.endswith(told)


WIDE = np.random.default_rng(1).integers(50257, size=1000, dtype="<u4")
BAD = {
    "empty": ("c.txt", b"", r"c\.txt: the text is empty"),
    "of a byte order mark": ("c.txt", b"\xef\xbb\xbf", r"c\.txt: the text is empty"),
    "latin1": ("c.txt", "déjà vu".encode("latin1"), r"c\.txt is not UTF-8 text \(byte 0xe9\)"),
    "utf16": ("c.txt", "text".encode("utf-16"), r"c\.txt is not UTF-8 text \(byte 0xff\)"),
    "binary": ("c.txt", b"\x00\x01text", r"c\.txt is not a text, it contains null bytes"),
    "gz in secret": ("c.txt", gzip.compress(b"text"), r"c\.txt is compressed \(gz\): unpack it .* such as c\.txt\.gz"),
    "tar": ("c.tar.gz", gzip.compress(b"text"), r"c\.tar\.gz is an archive: unpack it first"),
    "zip": ("c.zip", b"PK\3\4" + bytes(9), r"c\.zip is an archive: unpack it first"),
    "cut gz": ("c.txt.gz", gzip.compress(b"text" * 99)[:-9], r"c\.txt\.gz can't be read: Compressed file ended"),
    "beyond": ("c.bin", np.array([5, 50257], "<u2"), r"c\.bin has the token 50,257 at position 1; gpt2 has 50,257: "),
    "wider": ("c.bin", WIDE, r"data\.dtype=uint16: every other token of .*c\.bin would be 0"),
    "characters": ("c.bin", np.full(2000, 64, "<u2"), r"c\.bin has ids of its own characters, not tokens of gpt2"),
    "half a token": ("c.bin", b"abc", r"c\.bin is not complete, or holds something else than uint16"),
    "cut llm.c": ("c.bin", llm_c([1, 2, 3], count=9), r"c\.bin is not complete, or holds something else than uint16"),
    "nothing": ("c.bin", b"", r"c\.bin: the text is empty"),
    "unknown": ("unknown.bin", b"abcd", r"^data\.dtype=null: must be uint16 or uint32, as .*unknown\.bin doesn't say"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_texts_are_refused_and_leave_nothing(kind: str, tmp_path: Path) -> None:
    name, content, problem = BAD[kind]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.tobytes())
    dtype = "uint16" if name == "c.bin" else None
    with pytest.raises(UserError, match=problem) as refusal:
        corpus_of(DataConfig(str(tmp_path / name), dtype=dtype, cache_dir=str(tmp_path / "cache")))
    assert "\n" not in str(refusal.value)
    assert not [*(tmp_path / "cache").glob("*")] or "empty" in problem


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_compressed_text_that_was_cut_is_refused(ending: str, tmp_path: Path) -> None:
    library = pytest.importorskip({"gz": "gzip", "xz": "lzma", "zst": "zstandard"}.get(ending, ending))
    text, file = np.random.default_rng(1).bytes(300_000).hex(), tmp_path / f"c.txt.{ending}"
    packed = library.compress(text.encode())
    file.write_bytes(packed + library.compress(b"second part"))
    assert "".join(read_text("c", file, False)) == text + "second part"
    for cut in (len(packed) // 2, len(packed) - 900, len(packed) - 1):
        file.write_bytes(packed[:cut])
        with pytest.raises(SettingError, match="can't be read: Compressed file ended"):
            list(read_text("c", file, False))
