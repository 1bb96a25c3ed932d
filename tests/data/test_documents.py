"""Documents of every format, and texts and corpora that are refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import torch
from corpora import DOCUMENTS, WRITERS, joined, llm_c, write_dataset, write_gz, write_jsonl, write_parquet, write_zst
from poslab.data.module import TextDataModule

from poslab.config.schema import DataConfig
from poslab.data import token_cache
from poslab.data.corpus import Split, load_corpus
from poslab.errors import SettingError, UserError


@pytest.mark.parametrize("name", WRITERS)
def test_documents_of_every_format(name: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / name, DOCUMENTS)
    loaded = load_corpus(str(path), gpt2, tmp_path / "cache", split=Split(validation=0.1, test=0.2))
    assert (loaded.name, loaded.documents) == (name, 30)
    assert loaded.train.dtype == torch.uint16
    assert loaded.train.tolist() == joined(DOCUMENTS[:21], gpt2)
    assert loaded.validation.tolist() == joined(DOCUMENTS[21:24], gpt2)
    assert loaded.test.tolist() == joined(DOCUMENTS[24:], gpt2)


def test_small_pieces_give_the_same_tokens(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poslab.data.pieces._PIECE", 40)
    write_jsonl(tmp_path / "a.jsonl", DOCUMENTS[:12])
    write_gz(tmp_path / "b.jsonl.gz", DOCUMENTS[12:])
    loaded = load_corpus(str(tmp_path), gpt2, tmp_path / "cache")
    assert (loaded.name, loaded.documents) == (f"2 files of {tmp_path}", 30)
    assert loaded.train.tolist() == joined(DOCUMENTS[:27], gpt2)
    assert loaded.validation.tolist() == joined(DOCUMENTS[27:], gpt2)


def test_what_is_empty_is_no_document(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    lines = ['{"text": "one"}', "", '{"text": ""}', '{"text": null}', '{"text": "half \\ud83d a pair"}']
    (tmp_path / "c.jsonl").write_text("\n".join(lines))  # no line end at the end
    loaded = load_corpus(str(tmp_path / "c.jsonl"), gpt2, tmp_path / "cache")
    assert loaded.documents == 2
    assert loaded.train.tolist() == gpt2.encode_ordinary("one")
    assert loaded.validation.tolist() == gpt2.encode_ordinary("half \ufffd a pair")


def cut(write: Callable[[Path, list[str]], Path]) -> Callable[[Path], bytes]:
    def half(tmp_path: Path) -> bytes:
        content = write(tmp_path / "whole", DOCUMENTS * 40).read_bytes()
        return content[: len(content) // 2]

    return half


def damaged_page(tmp_path: Path) -> bytes:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), tmp_path / "whole", **plain)
    return (tmp_path / "whole").read_bytes().replace(b"Number 17 says", b"Number 71 says")


def arrow_without_its_end(tmp_path: Path) -> bytes:
    """Return a stream that is cut after a record batch."""
    (file, *_) = sorted(write_dataset(tmp_path / "whole", DOCUMENTS).glob("*.arrow"))
    return file.read_bytes()[:-8]


BAD = {
    "empty text": ("c.txt", b"", r"c\.txt: the text is empty"),
    "text of a byte order mark": ("c.txt", b"\xef\xbb\xbf", r"c\.txt: the text is empty"),
    "latin1 text": ("c.txt", "déjà vu".encode("latin1"), r"c\.txt is not UTF-8 text \(byte 0xe9\)"),
    "utf16 text": ("c.txt", "text".encode("utf-16"), r"c\.txt is not UTF-8 text \(byte 0xff\)"),
    "binary text": ("c.txt", b"\x00\x01text", r"c\.txt is not a text, it contains null bytes"),
    "no column": (
        "c.jsonl",
        b'{"text": "a"}\n{"body": "b"}\n',
        r"data\.column=text: .*c\.jsonl, line 2 .*; valid: body",
    ),
    "no text": ("c.jsonl", b'{"text": 5}\n', r"data\.path=.*c\.jsonl: document 1: column text holds int, no text"),
    "latin1": ("c.jsonl", '{"text": "é"}\n'.encode("latin1"), r"line 1: is not UTF-8 \(byte 0xe9\)"),
    "cut line": (
        "c.jsonl",
        b'{"text": "a"}\n{"text": "b',
        r"c\.jsonl: line 2: is no complete JSON .*; is the file complete\?",
    ),
    "cut gz": ("c.jsonl.gz", cut(write_gz), r"c\.jsonl\.gz: after line \d+: .*; the file is damaged or not complete"),
    "cut zst": ("c.jsonl.zst", cut(write_zst), r"after line \d+: the Zstandard data ends within a frame"),
    "no zst": ("c.jsonl.zst", b"abc" * 9, r"c\.jsonl\.zst: after line 0: no Zstandard data"),
    "cut parquet": ("c.parquet", cut(write_parquet), r"c\.parquet: Parquet magic bytes not found"),
    "damaged page": ("c.parquet", damaged_page, r"c\.parquet: after row 0: .*damaged or not complete"),
    "arrow without its end": (
        "c.arrow",
        arrow_without_its_end,
        r"c\.arrow: has no mark of its end; the file is damaged or not complete",
    ),
    "nothing": ("c.jsonl", b"\n\n", r"data\.path=.*: the text is empty"),
    "beyond": (
        "c.bin",
        np.array([5, 50257], "<u2").tobytes(),
        r"c\.bin has the token 50,257 at position 1; gpt2 has 50,257: ",
    ),
    "half a token": ("c.bin", b"abc", r"c\.bin ends within a token of 2 bytes"),
    "cut llm.c": ("c.bin", llm_c([1, 2, 3], count=9), r"c\.bin is not complete: of 9 tokens it has 3"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_corpora_are_refused_and_leave_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.data.pieces._PIECE", 40)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 1)
    name, content, problem = BAD[kind]
    if name.endswith(".zst"):
        pytest.importorskip("zstandard")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content(tmp_path))
    config = DataConfig(str(tmp_path / name), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(UserError, match=problem) as refusal:
        TextDataModule(config, 8, 1)
    assert "\n" not in str(refusal.value)
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_table_without_the_column(tmp_path: Path, gpt2: tiktoken.Encoding) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"content": ["a"]}), tmp_path / "c.parquet")
    with pytest.raises(SettingError, match=r"^column=text: .*c\.parquet has no column text; .*valid: content$"):
        load_corpus(str(tmp_path / "c.parquet"), gpt2, tmp_path / "cache")
