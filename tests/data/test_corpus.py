"""Texts and corpora of documents as parts of tokens: bundled files, folders, splits, encodings."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import torch
from common import REPOSITORY, SMOKE, compose_config
from corpora import DOCUMENTS, SHAKESPEARE, VERDICT, joined, write_jsonl
from runs_to_compare import table_in

from poslab.config.files import find_files, fingerprint
from poslab.config.schema import DataConfig
from poslab.data.corpus import load_corpus
from poslab.data.tokenizer import Bytes, Characters
from poslab.errors import SettingError
from poslab.evaluation.files import own_text
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.train import train


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


def test_folders_and_globs_are_joined_by_end_of_text(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "b.txt").write_text("second file\n")
    (tmp_path / "a.txt").write_text("first file\n")
    (tmp_path / "deep" / "er" / "c.txt").write_text("third file, which is longer than the others are\n")
    (tmp_path / "notes.md").write_text("not a text")
    for path in (tmp_path, tmp_path / "**" / "*.txt"):
        loaded = load_corpus(str(path), gpt2, tmp_path / "cache")
        text = gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()])
        assert text == (
            "first file\n<|endoftext|>second file\n<|endoftext|>third file, which is longer than the others are\n"
        )
    assert loaded.train.tolist().count(gpt2.eot_token) == 2


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("piece", [2, 1 << 20])
def test_each_file_of_a_text_is_a_document(
    piece: int, observed: bool, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poslab.data.pieces._PIECE", piece)
    monkeypatch.setattr("poslab.data.corpus.in_order", map)
    for name, text in {"a": "one two\n", "b": "three\n", "c": "four five six\n" * 9}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    loaded = load_corpus(str(tmp_path), Characters(), tmp_path / "cache", observed)
    assert loaded.documents == 3
    ends = {"train": [8, 14], "validation": [], "test": []}
    assert {name: found.tolist() for name, found in loaded.ends.items()} == ends
    loaded = load_corpus(str(tmp_path), gpt2, tmp_path / "cache", observed)
    starts = [0, *loaded.ends["train"].tolist()]
    assert loaded.vocabulary.decode(loaded.train[: starts[1]].tolist()) == "one two\n<|endoftext|>"
    assert loaded.vocabulary.decode(loaded.train[starts[1] : starts[2]].tolist()) == "three\n<|endoftext|>"
    assert len(starts) == 3
    alone = load_corpus(str(tmp_path / "c.txt"), gpt2, tmp_path / "cache", observed)
    assert (alone.documents, len(alone.ends["train"])) == (None, 0)


def test_changed_content_is_not_taken_from_the_cache(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    for text in ("one two three four five", "six seven eight nine ten"):
        file.write_text(text)
        loaded = load_corpus(str(file), gpt2, tmp_path / "cache")
        assert gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()]) == text


def test_one_document_is_cut_as_a_text_is(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", ["one two three four five six seven eight nine ten"])
    loaded = load_corpus(str(path), gpt2, tmp_path / "cache")
    whole = joined(["one two three four five six seven eight nine ten"], gpt2)
    assert (loaded.train.tolist(), loaded.validation.tolist()) == (whole[:9], whole[9:])


def test_documents_by_characters_and_bytes(tmp_path: Path) -> None:
    """Encodings without an end-of-text token put nothing between documents."""
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


def test_tokens_without_documents_are_cut_by_their_number(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(np.arange(100, dtype="<u2").tobytes())
    loaded = load_corpus(str(tmp_path / "train.bin"), gpt2, tmp_path / "cache")
    assert (loaded.train.tolist(), loaded.validation.tolist()) == ([*range(90)], [*range(90, 100)])


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


def test_hidden_files_in_the_folder_are_no_part_of_the_corpus(tmp_path: Path, gpt2: tiktoken.Encoding) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "other.train.bin").write_bytes(b"tokens")
    (tmp_path / ".cache" / "copy.txt").write_text("as some editors make")
    assert find_files(str(tmp_path)) == [path]
    for _ in range(2):
        load_corpus(str(tmp_path), gpt2, tmp_path / "cache")  # nor is one of another name


def test_folders_of_data_sets(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text("{}")
    (tmp_path / "train" / "state.json").write_text('{"_data_files": [{"filename": "data-0.arrow"}]}')
    with pytest.raises(SettingError, match=r"holds several data sets \(train\); name one of these folders"):
        find_files(str(tmp_path))
    with pytest.raises(SettingError, match=r"data-0\.arrow can't be read: No such file"):
        fingerprint(str(tmp_path / "train"))
    (tmp_path / "train" / "data-0.arrow").write_bytes(b"")
    (tmp_path / "train" / "cache-1.arrow").write_bytes(b"")
    assert find_files(str(tmp_path / "train")) == [tmp_path / "train" / "data-0.arrow"]
    (tmp_path / "train" / "a.txt").write_text("text")
    for of_another_program in ("[]", "{", '{"_data_files": null}', "{}"):
        (tmp_path / "train" / "state.json").write_text(of_another_program)
        assert find_files(str(tmp_path / "train")) == [tmp_path / "train" / "a.txt"]


def test_a_run_on_documents(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "body": text}) for text in DOCUMENTS * 5]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    settings = (f"data.path={tmp_path / 'c.jsonl'}", f"data.cache_dir={tmp_path}/cache", f"run_dir={tmp_path}/run")
    summary = train(compose_config(*SMOKE, "data=text", *settings, "data.column=body", "evaluation.lengths=[8]"))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["documents"] == summary.documents == 150
    text = own_text(load_checkpoint(tmp_path / "run" / "checkpoints" / "best.safetensors"))
    assert (text.name, len(text.tokens)) == ("c.jsonl, validation part", summary.validation_tokens)
    stretches = (table := table_in(tmp_path / "run").table)[table["stretch"].notna()]
    assert stretches["document"].tolist() == list(range(1, 16))
    ends = [0, *(text.ends - 1).tolist()[:-1], len(text.tokens) - 1]
    assert stretches["stretch_tokens"].tolist() == np.diff(ends).tolist()
    mean = np.average(stretches["value"], weights=stretches["stretch_tokens"].astype(int))
    assert mean == pytest.approx(summary.best_val_loss, abs=1e-5)
