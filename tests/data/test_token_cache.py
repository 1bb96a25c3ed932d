"""Token files: made once, on all processors, whole or not at all, and resumed after a kill."""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tiktoken
import torch
from common import FULL_CAMPAIGN, REPOSITORY
from corpora import DOCUMENTS, VERDICT, write_jsonl
from poslab.data.pieces import Encoded, Piece
from processes import grown_by, measured_training

from poslab.data import corpus, token_cache
from poslab.data.corpus import Corpus, encode_piece, load_corpus
from poslab.errors import SettingError, UserError

NAMES = pytest.mark.parametrize("name", ["text.txt", "c.jsonl"])


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / name, DOCUMENTS)


@pytest.fixture
def whole(path: Path, gpt2: tiktoken.Encoding, tmp_path: Path) -> Corpus:
    """Corpus of a tokenisation that nothing disturbed."""
    return load_corpus(str(path), gpt2, tmp_path / "undisturbed")


def is_same(one: Corpus, other: Corpus) -> bool:
    parts = ("train", "validation", "test")
    return one.sha256 == other.sha256 and all(
        getattr(one, part).tolist() == getattr(other, part).tolist() and torch.equal(one.ends[part], other.ends[part])
        for part in parts
    )


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("file", ["tokens", "parts", "observed"])
@pytest.mark.parametrize("damage", [flip_a_bit, truncate, Path.unlink])
def test_a_damaged_cache_is_made_anew(
    damage: Callable[[Path], None],
    file: str,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    train, validation = first.train.tolist(), first.validation.tolist()
    del first  # a file that is mapped changes under its reader
    written = {file: file.read_bytes() for file in tmp_path.iterdir()}
    (damaged,) = tmp_path.glob(f"*.{file}")
    damage(damaged)
    assert capsys.readouterr().err == ""
    again = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    warning = f"warning: {damaged} is damaged or another's; it is made anew from the text\n"
    assert capsys.readouterr().err == ("" if damage is Path.unlink else warning)
    assert (again.train.tolist(), again.validation.tolist()) == (train, validation)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == written
    load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    assert capsys.readouterr().err == ""


@NAMES
def test_a_cache_file_under_another_name_is_made_anew(
    name: str, gpt2: tiktoken.Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, made = tmp_path / name, {}
    for text in ("one two three four five six", "six five four three two one"):
        file.write_text(f'{{"text": "{text}"}}\n' * 10)
        cache = tmp_path / text
        made[text] = load_corpus(str(file), gpt2, cache).train.tolist(), {file.suffix: file for file in cache.iterdir()}
    (one, its_files), (other, files) = made.values()
    assert one != other
    for suffix, mine in files.items():
        mine.write_bytes(its_files[suffix].read_bytes())
    assert load_corpus(str(file), gpt2, cache).train.tolist() == other
    assert capsys.readouterr().err.count("is damaged or another's; it is made anew from the text\n") == len(files)


def test_no_place_for_the_cache(gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("poslab.data.token_cache.GrowingFiles.append", full)
    problem = r"^data\.cache_dir=.*: can't be written: No space left on device; name another$"
    with pytest.raises(UserError, match=problem):
        load_corpus(str(VERDICT), gpt2, tmp_path)
    assert [*tmp_path.iterdir()] == []


@NAMES
@pytest.mark.parametrize("when", ["counted", "tokenised"])
def test_a_corpus_that_changes_while_it_is_read_is_not_stored(
    when: str, path: Path, whole: Corpus, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard against tokens of the changed text that are stored under the hash of the unchanged one."""
    original = path.read_bytes()
    shorter = original[: original.index(b"\n", 4000) + 1]

    def changing(*given: Any) -> None:
        if when == "counted":
            path.write_bytes(shorter)
        token_cache.write_all(*given)
        path.write_bytes(shorter)

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "write_all", changing)
        with pytest.raises(SettingError, match="the text changed while it was read; start again once it is complete"):
            load_corpus(str(path), gpt2, tmp_path / "cache")
    assert [*(tmp_path / "cache").iterdir()] == []
    path.write_bytes(original)
    assert is_same(load_corpus(str(path), gpt2, tmp_path / "cache"), whole)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.data.pieces._PIECE", 40)
    monkeypatch.setattr(token_cache, "_SAVE_EVERY", 2)
    monkeypatch.setattr(corpus, "in_order", map)  # or pieces ahead would be counted


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """Have the encoder interrupted at the piece after so many; return those that it has encoded, as they come."""
    encoded: list[Piece] = []

    def encode(tokenizer: tiktoken.Encoding, piece: Piece) -> Encoded:
        if len(encoded) == count:
            raise KeyboardInterrupt
        encoded.append(piece)
        return encode_piece(tokenizer, piece)

    monkeypatch.setattr(corpus, "encode_piece", encode)
    return encoded


@NAMES
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("count", [1, 7])
def test_tokenising_resumes_after_a_kill(
    count: int,
    path: Path,
    whole: Corpus,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "cache"
    interrupt_after(count, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        load_corpus(str(path), gpt2, cache)
    assert {file.suffix for file in cache.iterdir()} == ({".unfinished", ".progress"} if count > 1 else set())
    first = interrupt_after(-1, monkeypatch)
    assert is_same(load_corpus(str(path), gpt2, cache), whole)
    every = interrupt_after(-1, monkeypatch)
    load_corpus(str(path), gpt2, tmp_path / "at once")
    assert first == every[count - 1 :]  # one less than before: pieces were saved by twos
    assert ("tokenising resumes after" in capsys.readouterr().out) == (count > 1)
    assert not {".unfinished", ".progress"} & {file.suffix for file in cache.iterdir()}


@NAMES
def test_two_that_want_the_same_tokens_make_them_once(
    path: Path,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running, made = threading.Event(), []

    def slowly(*given: Any) -> None:
        made.append(threading.get_ident())
        running.set()
        time.sleep(0.3)
        token_cache.write_all(*given)

    monkeypatch.setattr(corpus, "write_all", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert running.wait(10)
        second = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert torch.equal(first.result(10).train, second.result(10).train)
    assert len(made) == 1
    assert capsys.readouterr().out.count("waiting for another process that tokenises the same text") == 1
    assert not [*(tmp_path / "cache").glob("*.lock")]


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
    process = measured_training(tmp_path, "data.path=large.jsonl", "run_dir=killed")
    while not [*(tmp_path / "cache").glob("*.progress")]:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    for run in ("first", "second"):
        output, grown = grown_by(measured_training(tmp_path, "data.path=large.jsonl", f"run_dir={run}"))
        print(f"campaign: {size / 1e6:.0f} MB of documents, {run} run: memory grown by {grown} KiB")
        assert grown < 1_000_000
        assert ("tokenising resumes after" in output) == (run == "first")
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
