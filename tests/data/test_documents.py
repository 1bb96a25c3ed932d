"""Corpora of documents and of tokens: formats, splits, what is refused, and tokenising that goes on after a kill."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tiktoken
import torch
from common import FULL_CAMPAIGN, REPOSITORY, SMOKE, compose_config

from poslab.config.files import find_files, fingerprint
from poslab.config.schema import DataConfig
from poslab.data import corpus, document_tokens, token_cache
from poslab.data.corpus import Split, load_corpus
from poslab.data.token_stream import read_tokens_of
from poslab.data.tokenizer import Bytes, Characters
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_text
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.train import train

DOCUMENTS = [
    "The first one.",
    " begins with a space",
    "Schöne Grüße, 世界 😀\n\nnew paragraph\r\n",
    "ends in <|endoftext|>",
    "a" * 3000,
    *(f"Number {number} says {'word ' * (number % 7)}" for number in range(25)),
]


def as_lines(documents: list[str], column: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, column: text}) + "\n" for text in documents).encode()


def write_jsonl(file: Path, documents: list[str]) -> Path:
    file.write_bytes(as_lines(documents))
    return file


def write_gz(file: Path, documents: list[str]) -> Path:
    file.write_bytes(gzip.compress(as_lines(documents)))
    return file


def write_zst(file: Path, documents: list[str]) -> Path:
    zstandard = pytest.importorskip("zstandard")
    lines, compress = as_lines(documents), zstandard.ZstdCompressor().compress
    file.write_bytes(compress(lines[:100]) + compress(lines[100:]))  # two frames
    return file


def write_parquet(file: Path, documents: list[str]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"id": range(len(documents)), "text": documents})
    pytest.importorskip("pyarrow.parquet").write_table(table, file, row_group_size=7)
    return file


def write_dataset(file: Path, documents: list[str]) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": documents}).save_to_disk(file, num_shards=2)
    return file


WRITERS: dict[str, Callable[[Path, list[str]], Path]] = {
    "c.jsonl": write_jsonl,
    "c.jsonl.gz": write_gz,
    "c.jsonl.zst": write_zst,
    "c.parquet": write_parquet,
    "dataset": write_dataset,
}


def joined(documents: list[str], gpt2: tiktoken.Encoding) -> list[int]:
    """The documents, each tokenised alone, with the end-of-text token between them."""
    tokens: list[int] = []
    for text in documents:
        tokens += [*gpt2.encode_ordinary(text), gpt2.eot_token]
    return tokens[:-1]


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
    """As do files one after the other: a document never goes on in the next."""
    monkeypatch.setattr(document_tokens, "_PIECE", 40)
    monkeypatch.setattr("poslab.data.documents._BLOCK", 50)
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


def test_one_document_is_cut_as_a_text_is(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", ["one two three four five six seven eight nine ten"])
    loaded = load_corpus(str(path), gpt2, tmp_path / "cache")
    whole = joined(["one two three four five six seven eight nine ten"], gpt2)
    assert (loaded.train.tolist(), loaded.validation.tolist()) == (whole[:9], whole[9:])


def test_documents_by_characters_and_bytes(tmp_path: Path) -> None:
    """They have no token for the end of a text, and follow each other."""
    path = str(write_jsonl(tmp_path / "c.jsonl", DOCUMENTS))
    text = "".join(DOCUMENTS)
    for encoding, tokens in ((Characters(), [ord(c) for c in text]), (Bytes(), [*text.encode()])):
        loaded = load_corpus(path, encoding, tmp_path / "cache", observed_only=True)
        assert loaded.train.dtype == torch.uint16
        assert loaded.vocabulary.observed is not None
        assert loaded.vocabulary.observed.tolist() == sorted(set(tokens))
        ids = [*loaded.train.tolist(), *loaded.validation.tolist()]
        assert loaded.vocabulary.observed[ids].tolist() == tokens


def test_another_column_is_another_text(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "one", "body": "two"}\n' * 2)
    by_column = {
        column: load_corpus(str(tmp_path), gpt2, tmp_path / "cache", column=column).train.tolist()
        for column in ("text", "body")
    }
    assert by_column == {"text": gpt2.encode_ordinary("one"), "body": gpt2.encode_ordinary("two")}
    as_text = tmp_path / "copy.txt"
    shutil.copy(tmp_path / "c.jsonl", as_text)
    assert fingerprint(str(as_text)) != fingerprint(str(tmp_path / "c.jsonl"))


def llm_c(
    tokens: list[int], magic: int = 20240520, version: int = 1, dtype: str = "<u2", count: int | None = None
) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens) if count is None else count
    return header.tobytes() + np.array(tokens, dtype).tobytes()


@pytest.mark.parametrize("length", [1, 7, 1 << 20])
def test_tokens_of_nanogpt_and_llm_c(
    length: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one ends a document by the end-of-text token, the other begins it so, and goes on in the next file."""
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


def test_tokens_without_documents_are_cut_by_their_number(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(np.arange(100, dtype="<u2").tobytes())
    loaded = load_corpus(str(tmp_path / "train.bin"), gpt2, tmp_path / "cache")
    assert (loaded.train.tolist(), loaded.validation.tolist()) == ([*range(90)], [*range(90, 100)])


@pytest.mark.parametrize(("dtype", "encoding"), [("<u4", "gpt2"), ("<i8", "gpt2"), ("<u4", "o200k_base")])
def test_wider_tokens_are_told_from_those_of_nanogpt(dtype: str, encoding: str, tmp_path: Path) -> None:
    """Whose every other number is small by chance only where they are few."""
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


def parquet_without(tmp_path: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"content": ["a"]}), tmp_path / "c.parquet")
    return tmp_path / "c.parquet"


def cut(write: Callable[[Path, list[str]], Path]) -> Callable[[Path], bytes]:
    def half(tmp_path: Path) -> bytes:
        content = write(tmp_path / "whole", DOCUMENTS * 40).read_bytes()
        return content[: len(content) // 2]

    return half


def spoiled_parquet(tmp_path: Path) -> bytes:
    content = bytearray(write_parquet(tmp_path / "whole", DOCUMENTS).read_bytes())
    middle = len(content) // 2  # the footer stays
    content[4:middle] = bytes(middle - 4)
    return bytes(content)


def damaged_page(tmp_path: Path) -> bytes:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), tmp_path / "whole", **plain)
    return (tmp_path / "whole").read_bytes().replace(b"Number 17 says", b"Number 71 says")


def arrow_without_its_end(tmp_path: Path) -> bytes:
    """As it is where it is cut after any record batch."""
    (file, *_) = sorted(write_dataset(tmp_path / "whole", DOCUMENTS).glob("*.arrow"))
    return file.read_bytes()[:-8]


BAD = {
    "no column": (
        "c.jsonl",
        b'{"text": "a"}\n{"body": "b"}\n',
        r"data\.column=text: .*c\.jsonl, line 2 .*; valid: body",
    ),
    "no text": ("c.jsonl", b'{"text": 5}\n', r"data\.path=.*c\.jsonl: line 1: column text holds int, no text"),
    "no object": ("c.jsonl", b'["a"]\n', r"line 1: is no JSON object, but list"),
    "latin1": ("c.jsonl", '{"text": "é"}\n'.encode("latin1"), r"line 1: is not UTF-8 \(byte 0xe9\)"),
    "cut line": (
        "c.jsonl",
        b'{"text": "a"}\n{"text": "b',
        r"c\.jsonl: line 2: is no complete JSON .*; is the file complete\?",
    ),
    "cut gz": ("c.jsonl.gz", cut(write_gz), r"c\.jsonl\.gz: after line \d+: .*; the file is damaged or not complete"),
    "empty gz": ("c.jsonl.gz", b"", r"c\.jsonl\.gz: after line 0: it is empty; the file is damaged or not complete"),
    "empty zst": ("c.jsonl.zst", b"", r"c\.jsonl\.zst: after line 0: it is empty; the file is damaged or not complete"),
    "no gz": ("c.jsonl.gz", b"plain", r"c\.jsonl\.gz: after line 0: Not a gzipped file"),
    "cut zst": (
        "c.jsonl.zst",
        cut(write_zst),
        r"c\.jsonl\.zst: after line \d+: the Zstandard data ends within a frame",
    ),
    "no zst": ("c.jsonl.zst", b"plain", r"c\.jsonl\.zst: after line 0: no Zstandard data"),
    "cut parquet": ("c.parquet", cut(write_parquet), r"c\.parquet: Parquet magic bytes not found"),
    "spoiled parquet": ("c.parquet", spoiled_parquet, r"c\.parquet: after row 0: .*damaged or not complete"),
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
        r"c\.bin has the token 50,257 at place 1; gpt2 has 50,257: ",
    ),
    "tokens of 32 bits": (
        "c.bin",
        np.arange(100, 108, dtype="<u4").tobytes(),
        r"c\.bin seems to hold tokens of 32 or 64 bits, as every other number of 16 bits is 0; .* uint16, nothing else",
    ),
    "half a token": ("c.bin", b"abc", r"c\.bin ends within a token of 2 bytes"),
    "cut llm.c": ("c.bin", llm_c([1, 2, 3], count=9), r"c\.bin is not complete: of 9 tokens it has 3"),
    "other version": ("c.bin", llm_c([1], version=3), r"c\.bin is of version 3 of llm\.c's format; 1 is known"),
    "only ends": ("c.bin", np.array([50256] * 3, "<u2").tobytes(), r"data\.path=.*: the text is empty"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_corpora_are_refused_and_leave_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_tokens, "_PIECE", 40)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 1)
    name, content, problem = BAD[kind]
    if name.endswith(".zst"):
        pytest.importorskip("zstandard")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content(tmp_path))
    overrides = (
        "data=text",
        f"data.path={tmp_path / name}",
        f"data.cache_dir={tmp_path}/cache",
        f"run_dir={tmp_path}/run",
    )
    with pytest.raises(UserError, match=problem) as refusal:
        train(compose_config(*SMOKE, *overrides))
    assert "\n" not in str(refusal.value)
    assert [*(tmp_path / "cache").iterdir()] == []
    assert not (tmp_path / "run").exists()


def test_a_table_without_the_column(tmp_path: Path, gpt2: tiktoken.Encoding) -> None:
    with pytest.raises(SettingError, match=r"^column=text: .*c\.parquet has no column text; .*valid: content$"):
        load_corpus(str(parquet_without(tmp_path)), gpt2, tmp_path / "cache")


def test_settings_that_no_corpus_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(path: Path, **given: str) -> str:
        with pytest.raises(SettingError) as refused:
            DataConfig(str(path), **given)
        return str(refused.value)

    (tmp_path / "c.bin").write_bytes(bytes(4))
    (tmp_path / "c.parquet").write_bytes(b"")
    assert "holds documents and tokens; name one kind" in refusal(tmp_path)
    assert DataConfig(str(tmp_path / "c.bin"), encoding="bytes").encoding == "bytes"
    assert refusal(tmp_path / "c.bin", encoding="characters").startswith("encoding=characters: ")
    assert refusal(tmp_path / "c.bin", column="body").endswith("c.bin holds tokens")
    monkeypatch.setattr("poslab.config.files.find_spec", lambda name: None)
    assert refusal(tmp_path / "c.parquet").endswith('needs pyarrow: python -m pip install "poslab[corpora]"')
    (tmp_path / "text.txt").write_text("a text")  # which a folder has been asked for before there were others
    assert find_files(str(tmp_path)) == [tmp_path / "text.txt"]


def test_a_cache_in_the_folder_is_no_part_of_the_corpus(tmp_path: Path, gpt2: tiktoken.Encoding) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "other.train.bin").write_bytes(b"tokens")
    assert find_files(str(tmp_path)) == [path]
    for _ in range(2):
        load_corpus(str(tmp_path), gpt2, tmp_path / "cache")  # nor is one of another name


def test_a_run_on_documents(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "body": text}) for text in DOCUMENTS * 5]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    settings = (f"data.path={tmp_path / 'c.jsonl'}", f"data.cache_dir={tmp_path}/cache", f"run_dir={tmp_path}/run")
    summary = train(compose_config(*SMOKE, "data=text", *settings, "data.column=body", "evaluation.lengths=[8]"))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["documents"] == summary.documents == 150
    text = own_text(load_checkpoint(tmp_path / "run" / "checkpoints" / "best.safetensors"))
    assert (text.name, len(text.tokens)) == ("c.jsonl, validation part", summary.validation_tokens)


def test_folders_of_data_sets(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text("{}")
    (tmp_path / "train" / "state.json").write_text('{"_data_files": [{"filename": "data-0.arrow"}]}')
    with pytest.raises(SettingError, match=r"holds several data sets \(train\); name one of these folders"):
        find_files(str(tmp_path))
    with pytest.raises(SettingError, match=r"data-0\.arrow of the data set is missing"):
        find_files(str(tmp_path / "train"))
    (tmp_path / "train" / "data-0.arrow").write_bytes(b"")
    (tmp_path / "train" / "cache-1.arrow").write_bytes(b"")
    assert find_files(str(tmp_path / "train")) == [tmp_path / "train" / "data-0.arrow"]


def interrupted_after(pieces: int, encode_all: Callable) -> Callable:
    """An encoder that is killed after so many pieces."""
    left = iter(range(pieces))

    def encode_some(tokenizer: tiktoken.Encoding, piece: object) -> object:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return encode_all(tokenizer, piece)

    return encode_some


def test_tokenising_goes_on_after_a_kill(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(document_tokens, "_PIECE", 40)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 2)
    monkeypatch.setattr(document_tokens, "in_order", map)  # or pieces ahead would be counted
    path, cache = str(write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)), tmp_path / "cache"
    encode_all = document_tokens._encode_all
    with monkeypatch.context() as patch:
        patch.setattr(document_tokens, "_encode_all", interrupted_after(7, encode_all))
        with pytest.raises(KeyboardInterrupt):
            load_corpus(path, gpt2, cache)
    assert {file.suffix for file in cache.iterdir()} == {".unfinished", ".progress"}
    tokenised: list[str] = []

    def remembering(tokenizer: tiktoken.Encoding, piece: document_tokens._Piece) -> token_cache.Encoded:
        tokenised.extend(piece.documents)
        return encode_all(tokenizer, piece)

    monkeypatch.setattr(document_tokens, "_encode_all", remembering)
    loaded = load_corpus(path, gpt2, cache)
    assert loaded.train.tolist() == joined(DOCUMENTS[:27], gpt2)
    assert 0 < len(tokenised) < 30
    assert tokenised == DOCUMENTS[-len(tokenised) :]
    assert "tokenising goes on after" in capsys.readouterr().out
    assert {file.suffix for file in cache.iterdir()} == {".tokens", ".ends"}


def test_damaged_beginnings_are_not_gone_on_with(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_tokens, "_PIECE", 40)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 2)
    path, cache = str(write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)), tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(document_tokens, "_encode_all", interrupted_after(7, document_tokens._encode_all))
        with pytest.raises(KeyboardInterrupt):
            load_corpus(path, gpt2, cache)
    (begun,) = cache.glob("*.tokens.unfinished")
    content = bytearray(begun.read_bytes())
    content[3] ^= 1
    begun.write_bytes(content)
    assert load_corpus(path, gpt2, cache).train.tolist() == joined(DOCUMENTS[:27], gpt2)


def test_no_place_for_the_cache(gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_jsonl(tmp_path / "c.jsonl", DOCUMENTS))
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("poslab.data.token_files.GrowingFiles.append", full)
    with pytest.raises(
        UserError, match=r"^data\.cache_dir=.*: can't be written: No space left on device; name another$"
    ):
        load_corpus(path, gpt2, tmp_path / "cache")
    assert [*(tmp_path / "cache").iterdir()] == []


def test_documents_that_change_while_they_are_read(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)
    encode_all = document_tokens._encode_all

    def changing(tokenizer: tiktoken.Encoding, piece: document_tokens._Piece) -> token_cache.Encoded:
        write_jsonl(path, DOCUMENTS[:5])
        return encode_all(tokenizer, piece)

    monkeypatch.setattr(document_tokens, "_encode_all", changing)
    with pytest.raises(SettingError, match="changed while it was read"):
        load_corpus(str(path), gpt2, tmp_path / "cache")
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.parametrize("name", ["text.txt", "c.jsonl"])
def test_two_that_want_the_same_tokens_make_them_once(
    name: str,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_jsonl(tmp_path / name, DOCUMENTS)
    running, made = threading.Event(), []
    write_all = token_cache.write_all

    def slowly(*given: object) -> None:
        made.append(threading.get_ident())
        running.set()
        time.sleep(0.3)
        write_all(*given)

    monkeypatch.setattr(document_tokens, "write_all", slowly)
    monkeypatch.setattr(corpus, "write_all", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert running.wait(10)
        second = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert torch.equal(first.result(10).train, second.result(10).train)
    assert len(made) == (2 if name == "text.txt" else 1)  # a text's parts are files of their own
    assert capsys.readouterr().out.count("waiting for another process that tokenises the same text") >= 1
    assert not [*(tmp_path / "cache").glob("*.lock")]


def test_a_text_goes_on_after_a_kill(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corpus, "_PIECE", 1000)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 2)
    monkeypatch.setattr(corpus, "in_order", map)
    path, encoded, left = str(REPOSITORY / "data" / "the-verdict.txt"), corpus._encoded, [9]

    def counting(tokenizer: tiktoken.Encoding, piece: object) -> object:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return encoded(tokenizer, piece)

    monkeypatch.setattr(corpus, "_encoded", counting)
    with pytest.raises(KeyboardInterrupt):
        load_corpus(path, gpt2, tmp_path)
    left[0] = 100
    loaded = load_corpus(path, gpt2, tmp_path)
    rest, left[0] = 100 - left[0], 100
    whole = load_corpus(path, gpt2, tmp_path / "at once")
    assert rest == 100 - left[0] - 8  # which were saved
    assert "tokenising goes on after" in capsys.readouterr().out
    assert (loaded.train.tolist(), loaded.validation.tolist()) == (whole.train.tolist(), whole.validation.tolist())


def large_corpus(file: Path, size: int) -> None:
    """A .jsonl of so many bytes: speeches of Shakespeare's, as many in a document as chance says."""
    speeches = (REPOSITORY / "data" / "tinyshakespeare.txt").read_text().split("\n\n")
    drawn = random.Random(1)
    with file.open("w") as opened:
        while opened.tell() < size:
            lines = []
            for _ in range(1000):
                start = drawn.randrange(len(speeches))
                text = "\n\n".join(speeches[start : start + drawn.randrange(1, 40)])
                lines.append(json.dumps({"text": text, "number": start}) + "\n")
            opened.write("".join(lines))


@pytest.mark.slow
def test_a_large_corpus_trains_in_little_memory(tmp_path: Path) -> None:
    """60 MB of documents, in a full campaign a gigabyte: killed while it is tokenised, gone on with, trained on."""
    size = 1_000_000_000 if FULL_CAMPAIGN else 60_000_000
    large_corpus(tmp_path / "large.jsonl", size)
    measured = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from common import compose_config
from poslab.training.train import train
import matplotlib.figure, torch.utils.tensorboard
before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
train(compose_config("experiment=smoke", "trainer=cpu", "data=text", "data.path=large.jsonl", *sys.argv[2:]))
after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - start
print(f"{took:.1f} s, {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} s of processors")
print("grown by", after.ru_maxrss - before.ru_maxrss)
"""

    def command(run: str) -> list[str]:
        settings = ["data.cache_dir=cache", f"run_dir={run}", "trainer.limit_val_batches=5"]
        return [sys.executable, "-c", measured, str(REPOSITORY / "tests"), *settings]

    process = subprocess.Popen(command("killed"), cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not [*(tmp_path / "cache").glob("*.progress")]:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    for run in ("first", "second"):
        result = subprocess.run(command(run), capture_output=True, text=True, cwd=tmp_path, check=True)
        *_, took, grown = result.stdout.splitlines()
        print(f"campaign: {size / 1e6:.0f} MB of documents, {run} run: {took}, memory {grown} KiB")
        assert int(grown.removeprefix("grown by ")) < 1_000_000
        assert ("tokenising goes on after" in result.stdout) == (run == "first")
    summary = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert summary["documents"] > size / 10_000
    assert sorted(file.suffix for file in (tmp_path / "cache").iterdir()) == [".ends", ".tokens"]


def _square(number: int) -> tuple[int, int]:
    if number == 13:
        raise SettingError("path", "13", "is no text")
    if number == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number, os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads compute")
def test_pieces_are_computed_in_processes_and_come_in_order() -> None:
    squares = list(token_cache.in_order(_square, range(12)))
    assert [square for square, _ in squares] == [number * number for number in range(12)]
    assert os.getpid() not in {process for _, process in squares}
    assert list(token_cache.in_order(_square, [5])) == [(25, os.getpid())]  # alone it needs none
    with pytest.raises(SettingError, match="is no text"):
        list(token_cache.in_order(_square, range(14)))
    with pytest.raises(UserError, match="was killed"):
        list(token_cache.in_order(_square, range(17, 30)))
