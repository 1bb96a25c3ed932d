"""Texts by character and by byte, and texts in three parts, of which the last decides nothing."""

import argparse
import json
import shutil
import string
from pathlib import Path

import pytest
import torch
from common import REPOSITORY, RunScript, compose_config

from poslab import load
from poslab.config.files import find_files, fingerprint, text_name
from poslab.config.schema import DataConfig
from poslab.data.corpus import Split, load_corpus
from poslab.data.module import TextDataModule
from poslab.data.tokenizer import Bytes, Characters, load_tokenizer
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_text
from poslab.evaluation.losses import sliding_token_losses
from poslab.runs.checkpoint import find_checkpoint, load_checkpoint
from poslab.training.train import train

SHAKESPEARE = REPOSITORY / "data" / "tinyshakespeare.txt"
VERDICT = REPOSITORY / "data" / "the-verdict.txt"
QUICK = ("experiment=smoke", "trainer=cpu", "trainer.max_epochs=1", "sample.new_tokens=0", "data.batch_size=4")
ODD = {
    "one character": "aaaa" * 40,
    "line ends of Windows": "one\r\ntwo\r\n" * 20,
    "beyond the first plane": "😀 👨‍👩‍👧 𝔘 漢\ufeff" * 20,
    "many characters": "".join(map(chr, range(0x4E00, 0x9000))),
    "no place to cut": "x" * 3000 + "é" * 3000,
    "control characters": "\x01\x1b[31m\x7f\u2028\u200b" * 20,
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
    (tmp_path / "text.txt").write_bytes(text.encode())
    path = str(tmp_path / "text.txt")
    split = int(0.9 * len(text))
    found = load_corpus(path, Characters(), tmp_path / "cache", observed_only=True)
    assert [*found.train.tolist(), *found.validation.tolist()] == by_characters(text)
    assert len(found.train) == split
    found = load_corpus(path, Bytes(), tmp_path / "cache")
    assert (found.train.tolist(), found.validation.tolist()) == ([*text[:split].encode()], [*text[split:].encode()])
    assert found.vocabulary.size == 256


@pytest.mark.parametrize(
    "content", [bytes(range(256)) * 3, b"\xef\xbb\xbfBOM", b"\x00" * 40, b"caf\xe9", b"cut \xe6\xbc"]
)
def test_bytes_are_those_of_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(content)
    found = load_corpus(str(tmp_path / "binary"), Bytes(), tmp_path / "cache")
    assert found.vocabulary.decode_bytes([*found.train.tolist(), *found.validation.tolist()]) == content


def test_files_follow_each_other_with_nothing_between(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"file {name}\n")
    for encoding in (Characters(), Bytes()):
        found = load_corpus(str(tmp_path), encoding, tmp_path / "cache", observed_only=True)
        whole = [*found.train.tolist(), *found.validation.tolist()]
        assert found.vocabulary.decode(whole) == "file a\nfile b\n"
        assert found.vocabulary.end_of_text is None


@pytest.mark.parametrize(
    ("encoding", "content", "problem"),
    [
        ("characters", b"", "the text is empty"),
        ("bytes", b"", "the text is empty"),
        ("characters", b"null\0byte " * 20, "contains null bytes"),
        ("characters", b"caf\xe9" * 20, "is not UTF-8"),
        ("characters", b"a" * 20, "the validation part of text.txt has only 2 characters; up to 1 would fit"),
        ("bytes", b"a", "the training part of text.txt has only 0 bytes; no context would fit"),
    ],
)
def test_what_cannot_be_trained_on(encoding: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    config = DataConfig(str(tmp_path / "text.txt"), encoding, cache_dir=str(tmp_path / "cache"))
    with pytest.raises(SettingError, match=problem):
        TextDataModule(config, 16, 1)


def test_an_alphabet_is_that_of_its_text() -> None:
    """So that full and observed are one and the same job."""
    for vocabulary in ("full", "observed"):
        config = compose_config("data=shakespeare_characters", f"data.vocabulary={vocabulary}")
        assert config.plain["data"]["vocabulary"] == "observed"
    config = compose_config("data=shakespeare_characters", "data.encoding=bytes", "data.vocabulary=full")
    assert config.plain["data"]["vocabulary"] == "full"


def test_a_run_by_character_is_used_later(run_script: RunScript, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={VERDICT}", "data.encoding=characters", f"run_dir={folder}"))
    model = load(folder)
    assert model.tokenizer.decode(model.tokenizer.encode("I HAD")) == "I HAD"
    code, output, errors = run_script("generate", f"ckpt={folder}", "prompt=I HAD", "max_new_tokens=20")
    assert (code, output[:5]) == (0, "I HAD")
    code, output, errors = run_script("generate", f"ckpt={folder}", "prompt=one Käse")
    assert code == 2
    of_text = f"the model knows only the {model.tokenizer.size} characters of the text it was trained on"
    assert errors == f"error: prompt=one Käse: {of_text}, not 'Kä'\n"
    code, output, errors = run_script("evaluate", f"ckpt={folder}", "lengths=[16]")
    assert (code, errors) == (0, "")
    (tmp_path / "other.txt").write_text("A café, and much more of it")
    code, output, errors = run_script(
        "evaluate", f"ckpt={folder}", f"data_path={tmp_path / 'other.txt'}", "lengths=[4]"
    )
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.endswith("not 'é'\n")


def test_a_run_by_byte_reads_anything(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={tmp_path / 'binary'}", "data.encoding=bytes", f"run_dir={folder}"))
    code, output, _ = run_script("generate", f"ckpt={folder}", "prompt=Käse", "max_new_tokens=2", "top_k=1")
    assert (code, output[:4]) == (0, "Käse")
    vocabulary = load_checkpoint(find_checkpoint(str(folder))).vocabulary
    with pytest.raises(SettingError, match="half of a surrogate pair"):
        vocabulary.encode("\ud800")


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
    checkpoint = load_checkpoint(find_checkpoint(str(tmp_path)))
    corpus = load_corpus(
        str(VERDICT), load_tokenizer("gpt2"), tmp_path / "cache", observed_only=True, split=checkpoint.split
    )
    losses = sliding_token_losses(checkpoint.model, corpus.validation[: 8 * 4 * 32 + 1], 32, 32)
    assert summary.best_val_loss == pytest.approx(float(losses.mean()), rel=1e-5)  # of the batches that smoke takes
    text = own_text(checkpoint)
    assert text.name == "the-verdict.txt, test part"
    assert len(text.tokens) == summary.test_tokens
    expected = sliding_token_losses(checkpoint.model, text.tokens, 32, 32).mean()
    assert summary.test_loss == pytest.approx(float(expected))
    assert json.loads((tmp_path / "evaluation.json").read_text())["text"] == "the-verdict.txt, test part"
    assert json.loads((tmp_path / "evaluation.json").read_text())["tokens"] == len(text.tokens) - 1


def test_without_a_test_part_nothing_is_new(tmp_path: Path) -> None:
    summary = train(compose_config(*QUICK, "data.vocabulary=observed", f"run_dir={tmp_path}"))
    assert (summary.test_loss, summary.test_tokens) == (None, None)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ["data.test_share=0.9"],
            r"^data\.test_share=0\.9: leaves nothing to train on beside data\.validation_share=0\.1$",
        ),
        (["data.test_share=1"], r"^data\.test_share=1: must be below 1$"),
        (["data.validation_share=0"], r"^data\.validation_share=0: must be above 0$"),
        (["data.test_share=0.001"], r"^model\.context_length=32: the test part of .* has only \d tokens; up to"),
    ],
)
def test_splits_that_leave_nothing(overrides: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        train(compose_config(*QUICK, *overrides, f"run_dir={tmp_path / 'run'}"))
    assert not (tmp_path / "run").exists()


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
