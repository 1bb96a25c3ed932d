"""Texts as parts of tokens: bundled files, folders, splits; and the cache of tokens, whole or not at all."""

import argparse
import hashlib
import shutil
import string
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tiktoken
import torch
from common import REPOSITORY, compose_config
from corpora import DOCUMENTS, LFS_POINTER, SHAKESPEARE, VERDICT, WRITERS, text_data

from poslab.config.corpora import find_files, fingerprint, text_name
from poslab.config.schema import DataConfig
from poslab.data import corpus
from poslab.data.corpus import Corpus, Split, load_corpus
from poslab.data.text import Encoded
from poslab.data.tokenizer import Bytes, Characters
from poslab.errors import SettingError, UserError
from poslab.training.data import make_data

NAMES = pytest.mark.parametrize("name", ["c.txt", "c.jsonl"])


def test_bundled_files_are_the_originals(reference_cases: dict) -> None:
    for name, sha256 in reference_cases["files_sha256"].items():
        assert hashlib.sha256((REPOSITORY / "data" / name).read_bytes()).hexdigest() == sha256, name
        assert sha256 in (REPOSITORY / "data" / "README.md").read_text(), name


def test_verdict_and_shakespeare_counts(reference_cases: dict, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    case = reference_cases["the_verdict"]
    loaded = load_corpus(str(VERDICT), gpt2, tmp_path)
    assert loaded.sha256 == case["sha256"]
    assert (len(loaded.train), len(loaded.validation)) == (case["train_tokens"], case["validation_tokens"])
    whole = gpt2.encode_ordinary(VERDICT.read_text())
    assert (len(whole), len(set(whole))) == (case["gpt2_tokens"], case["distinct_gpt2_tokens"])
    case = reference_cases["tinyshakespeare"]
    whole = gpt2.encode_ordinary(SHAKESPEARE.read_text())
    assert (len(whole), len(set(whole))) == (case["gpt2_tokens"], case["distinct_gpt2_tokens"])


def test_shakespeare_has_65_characters(tmp_path: Path) -> None:
    data = make_data(compose_config("data=shakespeare_characters", f"data.cache_dir={tmp_path}"))
    assert data.vocabulary.size == len(set(text := SHAKESPEARE.read_text())) == 65
    assert data.vocabulary.decode(range(65)) == "\n !$&',-.3:;?" + string.ascii_uppercase + string.ascii_lowercase
    assert data.description.endswith("1,003,854 training and 111,540 validation characters")
    opening = data.corpus.train[:200].tolist()
    assert (data.vocabulary.decode(opening), data.vocabulary.encode(text[:200])) == (text[:200], opening)


def test_the_library_of_python_is_a_text_by_its_contents(tmp_path: Path) -> None:
    config = compose_config("data=python_library").data
    assert isinstance(config, DataConfig)
    files = find_files(config.path)
    assert Path(argparse.__file__) in files
    assert files == sorted(files)
    assert {file.parent for file in files} == {Path(argparse.__file__).parent}  # and nothing that was installed
    for file in files:
        shutil.copy(file, tmp_path)
    copy = f"{tmp_path}/*.py"
    assert (text_name(config.path), text_name(copy)) == ("python_library", f"{len(files)} files of {copy}")
    assert fingerprint(copy) == fingerprint(config.path)
    (tmp_path / "argparse.py").write_text("another version")
    assert fingerprint(copy) != fingerprint(config.path)


@pytest.mark.parametrize("observed", [False, True])
def test_each_file_of_a_text_is_a_document(observed: bool, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name, text in {"b": "three\n", "a": "one two\n", "deep/er/c": "four five six\n" * 9}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "notes.md").write_text("not a text")
    (tmp_path / "data.jsonl").write_text("a folder that has texts is read as those only")
    (tmp_path / ".hidden.txt").write_text("as some editors make")
    for path in (tmp_path, tmp_path / "**" / "*.txt"):
        loaded = load_corpus(str(path), Characters(), tmp_path / "cache", observed)
        assert loaded.documents == 3
        assert [loaded.ends[part].tolist() for part in ("train", "validation", "test")] == [[8, 14], [], []]
        loaded = load_corpus(str(path), gpt2, tmp_path / "cache", observed)
        text = loaded.vocabulary.decode([*loaded.train.tolist(), *loaded.validation.tolist()])
        assert text == "one two\n<|endoftext|>three\n<|endoftext|>" + "four five six\n" * 9
        assert [loaded.train[end - 1] == loaded.vocabulary.end_of_text for end in loaded.ends["train"]] == [True, True]


def test_the_parts_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("0123456789" * 10)
    load = partial(load_corpus, str(tmp_path / "text.txt"), Characters(), tmp_path / "cache", True)
    found = load(Split(validation=0.2, test=0.1))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [70, 20, 10]
    assert torch.cat([found.train, found.validation, found.test]).tolist() == [*range(10)] * 10
    assert found.held_out == ("test", found.test)
    again = load(Split(validation=0.1, test=0.1))
    assert (len(again.train), len(again.validation)) == (80, 10)
    usual = load()
    assert (len(usual.train), len(usual.validation), len(usual.test)) == (90, 10, 0)
    assert usual.held_out[0] == "validation"


@pytest.mark.parametrize(
    ("encoding", "content", "problem"),
    [
        ("characters", b"a" * 20, "the validation part of text.txt has only 2 characters; model.context_length=1 "),
        ("bytes", b"a", "the training part of text.txt has only 0 bytes; no context would fit"),
    ],
)
def test_what_cannot_be_trained_on(encoding: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(SettingError, match=problem):
        text_data(tmp_path / "text.txt", tmp_path / "cache", 16, encoding=encoding)


@pytest.mark.parametrize(
    "name", ["c.txt", "c.md", "c.txt.gz", "c.jsonl", "c.json", "c.csv.zst", "c.parquet", "c.arrow", "c.bin"]
)
def test_pointers_of_git_lfs_are_no_text(name: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / name).write_text(LFS_POINTER)
    for path in (corpus / name, corpus / "*"):
        for encoding in (gpt2, Bytes()):
            with pytest.raises(SettingError, match=r"^path=.*Git LFS") as refusal:
                load_corpus(str(path), encoding, tmp_path / "cache")
            assert "\n" not in str(refusal.value)
    assert not (tmp_path / "cache").exists()


def test_one_pointer_of_git_lfs_among_texts_is_named(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    for name, content in {"a": "a text", "b": LFS_POINTER, "c": f"a text about\n{LFS_POINTER}"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    with pytest.raises(SettingError, match=r"b\.txt .*Git LFS"):
        load_corpus(str(tmp_path), gpt2, tmp_path / "cache")
    (tmp_path / "b.txt").unlink()
    assert load_corpus(str(tmp_path), gpt2, tmp_path / "cache").documents == 2


# The cache


def tokens_of(corpus: Corpus) -> list[Any]:
    parts = [corpus.train, corpus.validation, corpus.test, *corpus.ends.values()]
    return [corpus.sha256, *(part.tolist() for part in parts)]


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    (tmp_path / "c.txt").write_bytes(VERDICT.read_bytes())
    WRITERS["c.jsonl"](tmp_path / "c.jsonl", DOCUMENTS)
    return tmp_path / name


@NAMES
def test_second_load_reads_the_files_of_the_first_and_what_is_missing_or_cut_is_made_anew(
    path: Path, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = partial(load_corpus, str(path), gpt2, tmp_path / "cache", observed_only=True)
    expected = tokens_of(load())
    written = {file: file.read_bytes() for file in (tmp_path / "cache").iterdir()}
    for file, content in written.items():
        for left in (content[:-2], content[:9], b"", None):
            file.unlink() if left is None else file.write_bytes(left)
            assert tokens_of(load()) == expected
            assert file.read_bytes() == content
    monkeypatch.setattr(corpus, "_write", None)
    assert tokens_of(load()) == expected
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"\n") + 1])
    monkeypatch.undo()
    assert tokens_of(load()) != expected


def test_no_place_for_the_cache(gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(np, "save", full)
    problem = r"^data\.cache_dir=.*: can't be written: No space left on device; name another$"
    with pytest.raises(UserError, match=problem):
        load_corpus(str(VERDICT), gpt2, tmp_path)
    assert [*tmp_path.iterdir()] == []


def slowed(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[Path]:
    """Have something done while the first tokens are written; return a list that grows by each file that is made."""
    made: list[Path] = []
    write = corpus._write

    def slowly(file: Path, dtype: np.dtype, pieces: Iterator[Encoded]) -> None:
        made.append(file)
        first = next(pieces)
        meanwhile()
        write(file, dtype, chain([first], pieces))

    monkeypatch.setattr(corpus, "_write", slowly)
    return made


@NAMES
def test_a_corpus_that_changes_while_it_is_read_is_not_stored(
    path: Path, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard against tokens of the changed text that are stored under the hash of the unchanged one."""
    with monkeypatch.context() as patch:
        slowed(patch, lambda: path.write_bytes(path.read_bytes() + b"\n"))
        with pytest.raises(SettingError, match="changed"):
            load_corpus(str(path), gpt2, tmp_path / "cache")
    assert [*(tmp_path / "cache").iterdir()] == []


@NAMES
def test_two_that_want_the_same_tokens_make_them_once(
    path: Path, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, waiting = threading.Event(), threading.Event()
    made = slowed(monkeypatch, lambda: (running.set(), waiting.wait(0.3)))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert running.wait(10)
        second = pool.submit(load_corpus, str(path), gpt2, tmp_path / "cache")
        assert tokens_of(first.result(20)) == tokens_of(second.result(20))
    assert len(made) == len({*made})
