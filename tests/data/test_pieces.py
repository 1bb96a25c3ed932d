"""Texts are cut only where their tokens stay the same."""

from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from poslab.data.pieces import last_safe_cut, text_pieces
from tiktoken_ext import openai_public

from poslab.data import pieces
from poslab.data.corpus import encode_piece, load_corpus
from poslab.data.tokenizer import load_tokenizer


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
]


@pytest.mark.parametrize("piece", [1, 7, 50])
@pytest.mark.parametrize("text", ["".join(TRICKY) * 3, *TRICKY], ids=lambda text: repr(text[:10]))
def test_tokenising_in_pieces_changes_nothing(
    text: str, piece: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_PIECE", piece)
    monkeypatch.setattr("poslab.data.corpus.in_order", map)
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    loaded = load_corpus(str(file), gpt2, tmp_path / "cache")
    split = int(0.9 * len(text))
    assert loaded.train.tolist() == gpt2.encode_ordinary(text[:split])
    assert loaded.validation.tolist() == gpt2.encode_ordinary(text[split:])


@given(
    text=st.text(st.sampled_from("ab1 \n\r\t.,'é漢_\u00a0\u0301"), min_size=1, max_size=60),
    piece=st.integers(1, 9),
    stops=st.lists(st.integers(0, 60), max_size=2),
)
@settings(max_examples=200, deadline=None)
def test_pieces_of_random_text(text: str, piece: int, stops: list[int]) -> None:
    gpt2 = load_tokenizer("gpt2")
    stops = [*sorted(min(stop, len(text)) for stop in stops), len(text)]
    blocks = [text[start : start + piece] for start in range(0, len(text), piece)]
    with mock.patch.object(pieces, "read_text", return_value=blocks):
        found = list(text_pieces(mock.Mock(), gpt2, stops))
    assert [piece.read for piece in found if piece.part_ends] == stops
    tokens = [token for piece in found for token in encode_piece(gpt2, piece).tokens.tolist()]
    parts = [text[start:stop] for start, stop in pairwise([0, *stops])]
    assert tokens == [token for part in parts for token in gpt2.encode_ordinary(part)]


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
    for cut in (match.end() for match in pieces._SAFE_CUT.finditer(text)):
        assert cut in starts
        assert [*regex.findall(encoding, text[:cut]), *regex.findall(encoding, text[cut:])] == whole


def test_byte_order_mark_is_dropped_and_line_ends_stay(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    file = tmp_path / "windows.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\nfour\r\n")
    loaded = load_corpus(str(file), gpt2, tmp_path)
    assert gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()]) == "one\r\ntwo\r\nthree\r\nfour\r\n"
