"""Texts by character and by byte, and texts in three parts, of which the last decides nothing;
and data.vocabulary=observed: fewer ids for the same text, and words that it doesn't have."""

import argparse
import json
import shutil
import string
from pathlib import Path

import pytest
import tiktoken
import torch
from common import RunScript, assert_refused, compose_config
from corpora import SHAKESPEARE, VERDICT
from hypothesis import given, settings
from hypothesis import strategies as st
from poslab.data.module import TextDataModule

from poslab import load
from poslab.config.files import find_files, fingerprint, text_name
from poslab.config.schema import DataConfig
from poslab.data.corpus import Corpus, Split, load_corpus
from poslab.data.tokenizer import Bytes, Characters, Vocabulary, load_tokenizer, observed_ids
from poslab.errors import SettingError
from poslab.evaluation.files import own_text
from poslab.evaluation.losses import sliding_losses
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.train import train

QUICK = ("experiment=smoke", "trainer=cpu", "trainer.max_epochs=1", "sample.new_tokens=0", "data.batch_size=4")
ODD = {
    "one character": "aaaa" * 40,
    "beyond the first plane": "😀 👨‍👩‍👧 𝔘 漢\ufeff" * 20,
    "many characters": "".join(map(chr, range(0x4E00, 0x5200))),
    "no place to cut": "x" * 300 + "é" * 300,
}


def by_characters(text: str) -> list[int]:
    ids = {c: number for number, c in enumerate(sorted(set(text)))}
    return [ids[c] for c in text]


def test_shakespeare_has_65_characters(tmp_path: Path) -> None:
    config = compose_config("data=shakespeare_characters", f"data.cache_dir={tmp_path}").data
    assert isinstance(config, DataConfig)
    data = TextDataModule(config, 256, 1)
    text = SHAKESPEARE.read_text()
    assert data.vocabulary.size == len(set(text)) == 65
    assert data.vocabulary.decode(range(65)) == "\n !$&',-.3:;?" + string.ascii_uppercase + string.ascii_lowercase
    assert data.description.endswith("1,003,854 training and 111,540 validation characters")
    opening = data.corpus.train[:200].tolist()
    assert data.vocabulary.decode(opening) == text[:200]
    assert data.vocabulary.encode(text[:200]) == opening


def test_the_library_of_python_is_a_text_by_its_contents(tmp_path: Path) -> None:
    config = compose_config("data=python_library").data
    assert isinstance(config, DataConfig)
    files = find_files(config.path)
    assert Path(argparse.__file__) in files
    assert files == sorted(files)
    assert {file.parent for file in files} == {Path(argparse.__file__).parent}  # and nothing that was installed
    for file in files:
        shutil.copy(file, tmp_path)
    assert fingerprint(f"{tmp_path}/*.py") == fingerprint(config.path)
    assert (text_name(config.path), text_name(f"{tmp_path}/*.py")) == (
        "python_library",
        f"{len(files)} files of {tmp_path}/*.py",
    )
    (tmp_path / "argparse.py").write_text("another version")
    assert fingerprint(f"{tmp_path}/*.py") != fingerprint(config.path)


@pytest.mark.parametrize("piece", [7, 1 << 20])
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_texts(text: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.data.pieces._PIECE", piece)
    monkeypatch.setattr("poslab.data.corpus.in_order", map)
    (tmp_path / "text.txt").write_bytes(text.encode())
    path = str(tmp_path / "text.txt")
    split = int(0.9 * len(text))
    found = load_corpus(path, Characters(), tmp_path / "cache", observed_only=True)
    assert [*found.train.tolist(), *found.validation.tolist()] == by_characters(text)
    assert len(found.train) == split
    found = load_corpus(path, Bytes(), tmp_path / "cache")
    assert (found.train.tolist(), found.validation.tolist()) == ([*text[:split].encode()], [*text[split:].encode()])
    assert found.vocabulary.size == 256


@pytest.mark.parametrize("content", [bytes(range(256)), b"\xef\xbb\xbfBOM", b"cut \xe6\xbc"])
def test_bytes_are_those_of_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(content)
    found = load_corpus(str(tmp_path / "binary"), Bytes(), tmp_path / "cache")
    assert found.vocabulary.decode_bytes([*found.train.tolist(), *found.validation.tolist()]) == content


@pytest.mark.parametrize(
    ("encoding", "content", "problem"),
    [
        ("characters", b"a" * 20, "the validation part of text.txt has only 2 characters; up to 1 would fit"),
        ("bytes", b"a", "the training part of text.txt has only 0 bytes; no context would fit"),
    ],
)
def test_what_cannot_be_trained_on(encoding: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    config = DataConfig(str(tmp_path / "text.txt"), encoding, cache_dir=str(tmp_path / "cache"))
    with pytest.raises(SettingError, match=problem):
        TextDataModule(config, 16, 1)


@pytest.mark.parametrize(
    ("settings", "vocabulary"),
    [(["data.vocabulary=full"], "observed"), (["data.encoding=bytes", "data.vocabulary=full"], "full")],
)
def test_an_alphabet_is_that_of_its_text(settings: list[str], vocabulary: str) -> None:
    assert compose_config("data=shakespeare_characters", *settings).plain["data"]["vocabulary"] == vocabulary


def test_a_run_by_character_is_used_later(run_script: RunScript, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={VERDICT}", "data.encoding=characters", f"run_dir={folder}"))
    model = load(folder)
    assert model.tokenizer.decode(model.tokenizer.encode("I HAD")) == "I HAD"
    of_text = f"the model knows only the {model.tokenizer.size} characters of the text it was trained on"
    assert_refused(run_script("generate", f"ckpt={folder}", "prompt=one Käse"), f"Käse: {of_text}, not 'Kä'\n")
    code, _, errors = run_script("evaluate", f"ckpt={folder}", "lengths=[16]")
    assert (code, errors) == (0, "")
    other = tmp_path / "other.txt"
    other.write_text("A café, and much more of it")
    assert_refused(run_script("evaluate", f"ckpt={folder}", f"data_path={other}", "lengths=[4]"), "not 'é'\n")


def test_a_run_by_byte_reads_anything(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={tmp_path / 'binary'}", "data.encoding=bytes", f"run_dir={folder}"))
    code, output, _ = run_script("generate", f"ckpt={folder}", "prompt=Käse", "max_new_tokens=2", "top_k=1")
    assert (code, output[:4]) == (0, "Käse")


# Three parts


def test_the_parts_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("0123456789" * 10)
    path = str(tmp_path / "text.txt")
    found = load_corpus(path, Characters(), tmp_path / "cache", True, Split(validation=0.2, test=0.1))
    lengths = [len(part) for part in (found.train, found.validation, found.test)]
    assert lengths == [70, 20, 10]
    assert torch.cat([found.train, found.validation, found.test]).tolist() == [*range(10)] * 10
    assert found.held_out == ("test", found.test)
    again = load_corpus(path, Characters(), tmp_path / "cache", True, Split(validation=0.1, test=0.1))
    assert (len(again.train), len(again.validation)) == (80, 10)
    usual = load_corpus(path, Characters(), tmp_path / "cache", True)
    assert (len(usual.train), len(usual.validation), len(usual.test)) == (90, 10, 0)
    assert usual.held_out[0] == "validation"


def test_the_test_part_is_what_is_reported(tmp_path: Path) -> None:
    parts = ("data.validation_share=0.2", "data.test_share=0.1", "data.vocabulary=observed")
    summary = train(compose_config(*QUICK, *parts, "evaluation.lengths=[16]", f"run_dir={tmp_path}"))
    checkpoint = load_checkpoint(tmp_path)
    corpus = load_corpus(str(VERDICT), load_tokenizer("gpt2"), tmp_path / "cache", True, Split(0.2, 0.1))
    losses = sliding_losses(checkpoint.model, corpus.validation[: 8 * 4 * 32 + 1], 32, 32).losses
    assert summary.best_val_loss == pytest.approx(float(losses.mean()), rel=1e-5)  # of the batches that smoke takes
    text = own_text(checkpoint)
    assert text.name == "the-verdict.txt, test part"
    assert len(text.tokens) == summary.test_tokens
    expected = sliding_losses(checkpoint.model, text.tokens, 32, 32).losses.mean()
    assert summary.test_loss == pytest.approx(float(expected))
    assert json.loads((tmp_path / "evaluation.json").read_text())["text"] == "the-verdict.txt, test part"
    assert json.loads((tmp_path / "evaluation.json").read_text())["tokens"] == len(text.tokens) - 1


@pytest.mark.usefixtures("no_network")
def test_gpt2_without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "tiktoken"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    tokenizer = load_tokenizer("gpt2")
    assert tokenizer.decode(tokenizer.encode("Every effort moves you")) == "Every effort moves you"
    assert tokenizer.eot_token == 50256
    assert not cache.exists()
    with pytest.raises(SettingError, match="could not download"):
        load_tokenizer("cl100k_base")


@pytest.fixture(scope="module")
def verdict(gpt2: tiktoken.Encoding, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return load_corpus(str(VERDICT), gpt2, tmp_path_factory.mktemp("cache"), observed_only=True)


def cached(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_the_verdict_has_1417_tokens(verdict: Corpus, gpt2: tiktoken.Encoding) -> None:
    text = VERDICT.read_text()
    split = int(0.9 * len(text))
    expected = sorted({*gpt2.encode_ordinary(text[:split]), *gpt2.encode_ordinary(text[split:])})
    assert verdict.vocabulary.observed is not None
    assert verdict.vocabulary.observed.tolist() == expected
    assert (verdict.vocabulary.size, verdict.vocabulary.name) == (1417, "observed")
    assert len(set(gpt2.encode_ordinary(text))) == 1416  # the split cuts a word in two


def test_ids_of_a_long_text_are_found_in_pieces() -> None:
    tokens = torch.zeros(3 * 2**20, dtype=torch.int32)
    tokens[[5, 2**20, 2**20 + 1, -1]] = torch.tensor([40_000, 7, 50_256, 9], dtype=torch.int32)
    assert observed_ids(tokens).tolist() == [0, 7, 9, 40_000, 50_256]
    assert observed_ids(torch.empty(0, dtype=torch.int32)).tolist() == []


def test_second_load_reads_the_files_of_the_first(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    files = cached(tmp_path)
    assert len(files) == 4
    monkeypatch.setattr("poslab.data.token_cache.GrowingFiles", None)
    monkeypatch.setattr(Vocabulary, "narrow", None)
    again = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.validation, again.validation)
    assert cached(tmp_path) == files


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("I HAD zebras", "' ze'"),  # "bras" is known
        ("xylophone " * 1000, "'xylophone xylophone xylophone x'"),
    ],
)
def test_words_outside_are_named(prompt: str, words: str, verdict: Corpus) -> None:
    with pytest.raises(SettingError) as refusal:
        verdict.vocabulary.encode(prompt, "sample.prompt")
    assert refusal.value.option == "sample.prompt"
    assert "the model knows only the 1,417 tokens of the text it was trained on" in str(refusal.value)
    assert str(refusal.value).endswith(f"not {words}")


@given(text=st.text(st.sampled_from("I HAD always thought zé漢🙂\n"), max_size=30))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_prompt_is_encoded_right_or_refused(text: str) -> None:
    encoding = load_tokenizer("gpt2")
    known = set(encoding.encode_ordinary("I HAD always thought é\n"))
    vocabulary = Vocabulary(encoding, torch.tensor(sorted(known), dtype=torch.int32))
    tokens = encoding.encode_ordinary(text)
    if set(tokens) <= known:
        assert vocabulary.decode(vocabulary.encode(text)) == text
    else:
        with pytest.raises(SettingError, match="knows only"):
            vocabulary.encode(text)


def test_ids_that_there_are_not(verdict: Corpus) -> None:
    for ids in ([-1], [0, verdict.vocabulary.size]):
        with pytest.raises(SettingError, match=f"must be from 0 to {verdict.vocabulary.size - 1}"):
            verdict.vocabulary.decode(ids)
