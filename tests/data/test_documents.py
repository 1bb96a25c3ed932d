"""Documents of every format, of several files, saved data sets and the Hub; and what is refused."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import tiktoken
import torch
from common import FULL_CAMPAIGN, SMOKE, compose_config
from corpora import DOCUMENTS, SHAKESPEARE, WRITERS, as_csv, as_lines, as_zst, data_set, joined
from processes import grown_by, measured_training
from refusals import refused

from poslab.config.corpora import fingerprint
from poslab.config.hugging_face import on_this_machine
from poslab.config.schema import DataConfig
from poslab.data.corpus import WHOLE, Corpus, Split, corpus_of, load_corpus
from poslab.data.tokenizer import Bytes, Characters
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_text
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.train import train


@pytest.mark.parametrize("name", WRITERS)
def test_documents_of_every_format(name: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, DOCUMENTS)
    loaded = load_corpus(str(tmp_path / name), gpt2, tmp_path / "cache", split=Split(validation=0.1, test=0.2))
    assert (loaded.name, loaded.documents, loaded.train.dtype) == (name, 30, torch.uint16)
    assert loaded.train.tolist() == joined(DOCUMENTS[:21], gpt2)
    assert loaded.validation.tolist() == joined(DOCUMENTS[21:24], gpt2)
    assert loaded.test.tolist() == joined(DOCUMENTS[24:], gpt2)
    lengths = [len(gpt2.encode_ordinary(text)) + 1 for text in DOCUMENTS[21:24]]
    assert loaded.ends["validation"].tolist() == torch.tensor(lengths).cumsum(0).tolist()
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".npy"}


def test_what_is_empty_is_no_document_and_one_is_cut_as_a_text_is(
    gpt2: tiktoken.Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "one"}\n\n{"text": ""}\n{"text": null}\n{"text": "two"}')
    loaded = load_corpus(str(tmp_path / "c.jsonl"), gpt2, tmp_path / "cache")
    assert (loaded.documents, gpt2.decode(loaded.train.tolist()), gpt2.decode(loaded.validation.tolist())) == (
        2,
        "one",
        "two",
    )
    assert "c.jsonl: 2 of 4 documents are empty, or null, and left out\n" in capsys.readouterr().out
    text = "one two three four five six seven eight nine ten"
    (tmp_path / "c.jsonl").write_bytes(as_lines([text]))
    loaded = load_corpus(str(tmp_path / "c.jsonl"), gpt2, tmp_path / "cache")
    assert [*loaded.train.tolist(), -1, *loaded.validation.tolist()] == [*(of := gpt2.encode(text))[:9], -1, *of[9:]]


def test_lines_of_json_by_any_name(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    lines, loaded = as_lines(DOCUMENTS), []
    for ending in ("json", "jsonl", "ndjson", "jsonlines", "ldjson", "jl", "JSONL", "json.gz", "jsonl.gz", "jsonl.xz"):
        packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(ending[-3:], bytes)(lines)
        (tmp_path / f"c.{ending}").write_bytes(packed)
        loaded.append(load_corpus(str(tmp_path / f"c.{ending}"), gpt2, tmp_path / "cache"))
    assert {corpus.documents for corpus in loaded} == {len(DOCUMENTS)}
    assert all(corpus.train.equal(loaded[0].train) for corpus in loaded)


@pytest.mark.parametrize("before", [" ", "\n \t", "\ufeff"])
def test_a_list_of_json_may_stand_after_white_space(before: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(before + json.dumps([{"text": "One."}, {"text": "Two."}], indent=1))
    corpus = load_corpus(str(tmp_path / "c.json"), Characters(), tmp_path / "cache", split=WHOLE)
    assert corpus.documents == 2


def test_zeros_after_a_compressed_corpus_are_padding(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    for ending, compress in (("bz2", bz2.compress), ("xz", lzma.compress), ("zst", as_zst)):
        file = tmp_path / f"c.jsonl.{ending}"
        file.write_bytes(compress(as_lines(DOCUMENTS[:2])) + bytes(3000) + compress(as_lines(DOCUMENTS[2:])))
        assert load_corpus(str(file), Characters(), tmp_path / "cache").documents == len(DOCUMENTS)


LISTED = {
    "itself": ("dataset_dict.json", '{"splits": ["."]}'),
    "itself by a longer name": ("dataset_dict.json", '{"splits": ["../saved"]}'),
    "a name of any length": ("dataset_dict.json", json.dumps({"splits": ["a" * 9999]})),
    "a list without end": ("state.json", "[" * 10**5),
    "a name with a zero": ("state.json", '{"_data_files": [{"filename": "a\\u0000.arrow"}]}'),
    "half a character": ("state.json", '{"_data_files": [{"filename": "\\ud800.arrow"}]}'),
}


@pytest.mark.parametrize("kind", LISTED)
def test_a_saved_data_set_that_lists_what_cannot_be_is_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    name, content = LISTED[kind]
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / name).write_text(content)
    with pytest.raises(SettingError, match=r"path=.*saved: "):
        load_corpus(str(tmp_path / "saved"), Characters(), tmp_path / "cache")


def test_documents_by_characters_and_bytes(tmp_path: Path) -> None:
    """Encodings without an end-of-text token put nothing between documents."""
    (tmp_path / "c.jsonl").write_bytes(as_lines(DOCUMENTS))
    text = "".join(DOCUMENTS)
    for encoding, tokens in ((Characters(), [ord(c) for c in text]), (Bytes(), [*text.encode()])):
        loaded = load_corpus(str(tmp_path / "c.jsonl"), encoding, tmp_path / "cache", observed_only=True)
        assert loaded.vocabulary.observed is not None
        assert loaded.vocabulary.observed.tolist() == sorted(set(tokens))
        ids = [*loaded.train.tolist(), *loaded.validation.tolist()]
        assert loaded.vocabulary.observed[ids].tolist() == tokens


def texts_of(path: Path, cache: Path) -> list[str]:
    """Return the documents at a path, as they are read."""
    loaded = load_corpus(str(path), Characters(), cache, split=WHOLE)
    text = loaded.vocabulary.decode(loaded.validation.tolist())
    return [text[start:stop] for start, stop in pairwise([0, *loaded.ends["validation"].tolist()])]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "arrow", "csv"])
@pytest.mark.parametrize("other", [{}, {"score": 0.5}, {"meta": [1]}], ids=["missing", "another", "of another type"])
def test_columns_beside_the_text_may_differ(ending: str, other: dict[str, object], tmp_path: Path) -> None:
    pyarrow, corpus = pytest.importorskip("pyarrow"), tmp_path / "corpus"
    corpus.mkdir()
    for name, beside in (("a", {"meta": {"id": 1}}), ("b", other)):
        file, rows = corpus / f"{name}.{ending}", [{"text": f"{name} {number}", **beside} for number in range(3)]
        if ending == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file)
        elif ending == "arrow":
            with pyarrow.ipc.new_file(file, (table := pyarrow.Table.from_pylist(rows)).schema) as opened:
                opened.write_table(table)
        elif ending == "csv":
            with file.open("w", newline="") as opened:
                csv.writer(opened).writerows([[*rows[0]], *([*row.values()] for row in rows)])
        else:
            file.write_text(json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    assert texts_of(corpus, tmp_path / "cache") == ["a 0", "a 1", "a 2", "b 0", "b 1", "b 2"]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    "text", ["2024-01-05T08:00:00", "2024-01-05", "08:00", "1", "1e5", "nan", "null", "NA", "true", "[1]"]
)
def test_strings_that_look_like_other_values_are_text(ending: str, text: str, tmp_path: Path) -> None:
    WRITERS[f"c.{ending}"](tmp_path / f"c.{ending}", [text] * 3)
    assert texts_of(tmp_path / f"c.{ending}", tmp_path / "cache") == [text] * 3


def test_rows_of_one_file_may_differ(tmp_path: Path) -> None:
    """Columns that come and go, and hold numbers that no machine has; half of a pair of surrogates."""
    lines = ['{"text": "a", "x": 1}', '{"x": [1], "text": "b"}', f'{{"text": "c", "x": {"9" * 5000}}}', '{"x": 1}']
    (tmp_path / "c.jsonl").write_text("\n".join([*lines, '{"text": "\\ud83d!"}', '{"text": "\\ud83d\\ude00"}']))
    assert texts_of(tmp_path / "c.jsonl", tmp_path / "cache") == ["a", "b", "c", "\ufffd!", "😀"]


# Delimited texts, with the documents that they hold and what is said of them.
QUOTED = {
    "as it should be": ('id,text\n1,"a ""b"", c"\n2,d "e" f\n', ['a "b", c', 'd "e" f'], None),
    "rows of several lines": (
        'text,id\n"a\nb",1\nc,2\n"d\n\n""e""",3\n',
        ["a\nb", "c", 'd\n\n"e"'],
        "2 of 3 rows have line ends within quotation marks, the first in line 2",
    ),
    "a stray one": ('id\ttext\n1\t"a, he said\n2\tsaid "b" to\n3\tc\n', ['"a, he said', 'said "b" to', "c"], "line 2"),
    "stray ones in several rows": ('text\n"a\nb\n" c\nd\n"e\n', ['"a', "b", '" c', "d", '"e'], "read as text"),
    "with backslashes": (
        'text,id\n"a \\"b\\" c",1\n"d, \\"e\\"",2\n', ['a "b" c', 'd, "e"'], "a backslash before a quotation mark",
    ),
    "commas in the only column": ("text\na, b\nc, d, e\n", ["a, b", "c, d, e"], None),
    "long": (f'text,id\n"{"a" * 200_000}",1\n', ["a" * 200_000], None),
    "without a last line end": ("id,text\r\n1,a\r\n2,b", ["a", "b"], None),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUOTED)
def test_a_delimited_text_loses_no_row_in_silence(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected, said = QUOTED[kind]
    file = tmp_path / ("c.tsv" if "\t" in content else "c.csv")
    file.write_text(content, newline="")
    assert texts_of(file, tmp_path / "cache") == expected
    printed = capsys.readouterr().out
    assert printed.startswith(f"data     {file}: ") and said in printed if said else not printed


def test_settings_give_another_corpus(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "one", "body": "two"}\n' * 2)
    for column in ("text", "body", "text"):
        loaded = load_corpus(str(tmp_path), gpt2, tmp_path / "cache", column=column)
        assert gpt2.decode(loaded.train.tolist()) == {"text": "one", "body": "two"}[column]


def begins(corpus: Corpus) -> list[str]:
    """Return the first word of each part that isn't empty."""
    parts = (corpus.train, corpus.validation, corpus.test)
    return [corpus.vocabulary.decode(tokens.tolist()).split()[0] for tokens in parts if len(tokens)]


COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Files with the word that their documents begin with, and those of train, validation and test.
SPLITS = {
    "files": (
        {"data/test-0.parquet": "test", "data/train-0.parquet": "train", "data/validation-0.parquet": "valid"},
        ["train", "valid", "test"],
    ),
    "folders": (
        {"train/0.parquet": "train", "dev/0.parquet": "dev", "test/train.parquet": "test"},
        ["train", "dev", "test"],
    ),
    "no validation": ({"a_test.parquet": "test", "a_train.parquet": "train"}, ["train", "train", "test"]),
    "others": ({"train.parquet": "train", "val.parquet": "val", "more.parquet": "more"}, ["train", "val"]),
    "texts": ({"ptb.test.txt": "test", "ptb.train.txt": "a", "ptb.valid.txt": "b"}, ["a", "b", "test"]),
    "words within words": ({"contest.parquet": "contest", "trainer.parquet": "trainer"}, ["contest", "trainer"]),
    "one split": ({"b-test-0.parquet": "zero", "b-test-1.parquet": "one"}, ["zero", "one"]),
    "copies of a cache": (
        {"cache-1a2b.arrow": "train", "t-train.arrow": "train", "t-validation.arrow": "valid"},
        ["train", "valid"],
    ),
    "copies of one split": ({"cache-1a2b.arrow": "copy", "data-0.arrow": "data"}, ["data", "data"]),
}


def write_files(folder: Path, words: dict[str, str]) -> None:
    for name, word in words.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        documents = [f"{word} story {number}" for number in range(10)]
        if name.endswith(".txt"):
            (folder / name).write_text("\n".join(documents))
        else:
            WRITERS["c" + (folder / name).suffix](folder / name, documents)


@pytest.mark.parametrize("kind", SPLITS)
def test_parts_are_the_splits_that_are_named(kind: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    words, expected = SPLITS[kind]
    write_files(tmp_path / "corpus", words)
    for path in (tmp_path / "corpus", tmp_path / "corpus" / "**" / "*.*"):
        if kind == "others" and "*" in str(path):
            with refused("split", "null"):
                load_corpus(str(path), gpt2, tmp_path / "cache")
        else:
            assert begins(load_corpus(str(path), gpt2, tmp_path / "cache")) == expected


def test_what_belongs_to_no_part_is_named(
    gpt2: tiktoken.Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "corpus", {"LICENSE.txt": "license"} | SPLITS["others"][0])
    assert begins(load_corpus(str(tmp_path / "corpus"), gpt2, tmp_path / "cache")) == ["train", "val"]
    assert capsys.readouterr().out.endswith("is left out: LICENSE.txt, more.parquet\n")


def test_the_splits_of_a_saved_data_set(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    parts = {name: data_set([f"{name} {number}" for number in range(10)]) for name in ("extra", "test", "train")}
    library = pytest.importorskip("datasets")
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    load = partial(load_corpus, str(tmp_path / "saved"), gpt2, tmp_path / "cache")
    loaded = load()
    assert (loaded.name, begins(loaded)) == ("saved", ["train", "train", "test"])
    assert begins(load(only="extra")) == ["extra", "extra"]
    assert load(only="all").documents == 30
    with refused("split", "dev", "extra", "test", "train", "all"):
        load(only="dev")
    with refused("test_share", "0.1", "0"):
        load(split=Split(test=0.1))
    shutil.rmtree(tmp_path / "saved" / "train")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["extra", "test"]}')
    with refused("split", "null"):
        load()


def test_the_hash_is_that_of_the_contents_and_of_their_splits(tmp_path: Path) -> None:
    write_files(tmp_path / "a", SPLITS["files"][0])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert fingerprint(str(tmp_path / "a")) == fingerprint(str(tmp_path / "b"))
    (tmp_path / "b" / "data" / "test-0.parquet").rename(tmp_path / "b" / "data" / "more.parquet")
    assert fingerprint(str(tmp_path / "a")) != fingerprint(str(tmp_path / "b"))
    (tmp_path / "c.jsonl").write_bytes(as_lines(["a"]))
    shutil.copy(tmp_path / "c.jsonl", tmp_path / "c.txt")
    assert fingerprint(str(tmp_path / "c.jsonl")) != fingerprint(str(tmp_path / "c.txt"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give the folder of a cache in which the Hub's data set owner/name is, without a network."""
    datasets = pytest.importorskip("datasets")
    from huggingface_hub import constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "datasets--owner--name" / "snapshots" / COMMIT
    write_files(snapshot, {"b/train.jsonl": "train", "b/val.jsonl": "valid", "a/train.jsonl": "other"})
    folders = "".join(f"- config_name: {name}\n  data_dir: {name}\n" for name in "ab")
    (snapshot / "README.md").write_text(f"---\nconfigs:\n{folders}---\n")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(COMMIT)
    return snapshot


def test_data_sets_of_the_hub(hub: Path, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    path = "hf://owner/name"
    load = partial(load_corpus, path, gpt2, tmp_path / "cache")
    loaded = load(name="b")
    assert (loaded.name, begins(loaded), loaded.sha256) == ("owner/name", ["train", "valid"], fingerprint(path, "b"))
    assert begins(load(name="b", only="train[:5]")) == ["train", "train"]
    assert begins(load_corpus(str(hub), gpt2, tmp_path / "cache", name="a")) == ["other", "other"]  # a clone
    with refused("name", "null"):
        load()
    with refused("split", "dev"):
        load(name="b", only="dev")
    with pytest.raises(SettingError, match=r"^path=hf://owner/none: .*Hub"):
        load_corpus("hf://owner/none", gpt2, tmp_path / "cache")
    # What has been loaded before is read from the cache of that, as it is online where nothing has changed.
    converted = next((tmp_path / "datasets").glob("*/b/0.0.0/*/dataset_info.json")).parent
    prepared = tmp_path / "datasets" / "owner___name" / "b" / "0.0.0" / COMMIT
    shutil.copytree(converted, prepared)
    for file in prepared.glob(f"{COMMIT}-*"):
        file.rename(file.with_name(file.name.replace(COMMIT, "name")))
    shutil.rmtree(tmp_path / "hub")
    assert load(name="b").sha256 == loaded.sha256


def test_a_run_on_a_data_set_of_the_hub(hub: Path, tmp_path: Path) -> None:
    data = ("data=text", "data.path=hf://owner/name", "data.name=b", f"data.cache_dir={tmp_path}/cache")
    summary = train(compose_config(*SMOKE, *data, "model.context_length=16", f"run_dir={tmp_path}/run"))
    text = own_text(load_checkpoint(tmp_path / "run"))
    assert (text.name, len(text.tokens)) == ("owner/name, validation part", summary.validation_tokens)


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def parquet_of_times() -> bytes:
    pyarrow, written = pytest.importorskip("pyarrow"), io.BytesIO()
    table = pyarrow.table({"text": pyarrow.array([0], pyarrow.timestamp("ms"))})
    pytest.importorskip("pyarrow.parquet").write_table(table, written)
    return written.getvalue()


def cut_stream() -> bytes:
    pyarrow, written = pytest.importorskip("pyarrow"), io.BytesIO()
    table = pyarrow.table({"text": ["One.", "Two."]})
    writer = pyarrow.ipc.new_stream(written, table.schema)
    writer.write_table(table)
    return written.getvalue()


LINES = as_lines([f"Story {number}" for number in range(4000)])
BAD = {
    "no text": ("c.jsonl", b'{"text": 5}\n', r"data\.column=text: holds float in line 1 of .*c\.jsonl, no text"),
    "lists": ("c.jsonl", b'{"text": ["a"]}\n', r"data\.column=text: holds list in line 1 of .*c\.jsonl, no text"),
    "latin1": ("c.jsonl", '{"text": "é"}\n'.encode("latin1"), r"c\.jsonl is not UTF-8 \(byte 0xe9\)"),
    "cut line": ("c.jsonl", LINES[:-9], r"c\.jsonl can't be read, is it complete\? line 4,000"),
    "cut gz": ("c.jsonl.gz", half(gzip.compress(LINES)), r"c\.jsonl\.gz can't be read, is it complete\? Compressed"),
    "a bz2 with a damaged part": (
        "c.jsonl.bz2",
        lambda: bz2.compress(LINES[:900]) + b"BZ?" + bz2.compress(LINES[900:])[3:],
        r"c\.jsonl\.bz2 can't be read, is it complete\?",
    ),
    "an xz with a damaged part": (
        "c.jsonl.xz",
        lambda: lzma.compress(LINES[:900]) + b"?" + lzma.compress(LINES[900:])[1:],
        r"c\.jsonl\.xz can't be read, is it complete\?",
    ),
    "an arrow without its last batches": (
        "c.arrow",
        lambda: cut_stream(),
        r"c\.arrow can't be read, .* mark that ends",
    ),
    "cut zst": ("c.jsonl.zst", lambda: half(as_zst(LINES)), r"c\.jsonl\.zst can't be read, is it complete\?"),
    "no zst": ("c.jsonl.zst", b"abc" * 9, r"c\.jsonl\.zst can't be read, is it complete\? zstd decompressor error"),
    "cut parquet": ("c.parquet", b"PAR1" + bytes(99), r"c\.parquet can't be read, is it complete\? Parquet"),
    "cut arrow": ("c.arrow", bytes(99), r"c\.arrow can't be read, is it complete\?"),
    "zipped parquet": ("c.parquet.gz", b"", r"a compressed \.parquet can't be read: unpack it first"),
    "latin1 csv": ("c.csv", "text\né".encode("latin1"), r"c\.csv is not UTF-8 \(byte 0xe9\)"),
    "quotes in quotes": ("c.csv", b'"n","text"\n1,"the "c" key"\n', r"c\.csv: line 2: ',' expected .* must be quoted"),
    "two columns": ("c.csv", b"text,n,text\na,1,b\n", r"data\.column=text: .*c\.csv has 2 columns of that name"),
    "nothing": ("c.jsonl", b"", r"data\.path=.*c\.jsonl is empty"),
    "no row": ("c.jsonl", b"\n\n", r"data\.path=.*c\.jsonl: the text is empty"),
    "no object": ("c.jsonl", b'{"text": "a"}\n"b"\n', r"c\.jsonl: line 2 of .*c\.jsonl is no JSON object"),
    "nested without end": ("c.jsonl", b'{"text": "", "b": ' + b"[" * 10**5, r"c\.jsonl can't be read.* nested"),
    "times": ("c.parquet", lambda: parquet_of_times(), r"data\.column=text: holds timestamp\[ms\] in .*c\.parquet"),
    "too many fields": ("c.csv", b"id,text\n1,Hello\n2,Hello, you\n", r"c\.csv: line 3: 3 fields, .* the header has 2"),
    "too few fields": ("c.csv", b"text,label\nHello,1\n\nWorld\n", r"c\.csv: line 4: 1 fields"),
    "an open quotation": ("c.csv", b'text,id\n"a, b",1\n"Hello, you,2\nbye,3\n', r"c\.csv: line 3: unexpected end"),
    "carriage returns": ("c.csv", b"text,label\ra,1\rb,2", r"c\.csv: line 1: a carriage return"),
    "no text in any row": ("c.jsonl", b'{"text": null}\n{"text": ""}', r"data\.path=.*: the text is empty"),
    "no column": ("c.jsonl", b'{"body": "b"}\n', r"data\.column=text: .*c\.jsonl has no column text; .*valid: body"),
    "no column in csv": ("c.csv", as_csv("a", ";").replace(b"text", b"body"), r"has no column text; .*valid: id, body"),
    "no header": ("c.csv", b"A long text. " * 20 + b"\n", r"no column text; .*valid: A long text\. .{1,30} \.\.\.$"),
    "no column in json": ("c.json", b'{"data": [{"text": "a"}]}', r"c\.json has no column text; .*valid: data"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_named_and_leave_nothing(kind: str, tmp_path: Path) -> None:
    name, content, problem = BAD[kind]
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / name).write_bytes(content() if callable(content) else content)
    with pytest.raises(UserError, match=problem) as refusal:
        corpus_of(DataConfig(str(folder / name), cache_dir=str(tmp_path / "cache")))
    assert "\n" not in str(refusal.value)
    assert not [*(tmp_path / "cache").glob("*")] or "empty" in problem


def test_of_several_files_the_bad_one_is_named(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    for name, content in {"a": LINES, "b": LINES[:-9], "c": LINES}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(content)
    with pytest.raises(SettingError, match=r"b\.jsonl"):
        load_corpus(str(tmp_path), gpt2, tmp_path / "cache")


def test_settings_that_no_corpus_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(file: str, **given: str) -> str:
        with pytest.raises(SettingError) as refused:
            DataConfig(str(tmp_path / file), **given)
        return str(refused.value)

    for name in ("c.bin", "c.parquet", "c.jsonl.zst", "c.md"):
        (tmp_path / name).write_bytes(bytes(4))
    assert "holds bin and json and parquet files; name one kind with a glob" in refusal("")
    assert DataConfig(str(tmp_path / "c.bin"), encoding="bytes").encoding == "bytes"
    assert refusal("c.bin", encoding="characters").startswith("encoding=characters: ")
    assert refusal("c.bin", column="body").endswith("is for documents; " + f"{tmp_path}/c.bin holds bin")
    assert refusal("c.md", dtype="uint16").startswith("dtype=uint16: is for .bin files; ")
    assert refusal("c.parquet", document_separator="x").startswith("document_separator=x: is for a .txt; ")
    assert refusal("c.md", document_separator="").startswith("document_separator=: must be the text between")
    assert refusal("c.parquet", name="x").startswith("name=x: is for data sets on the Hub; ")
    for missing, name in (("datasets", "c.parquet"), ("zstandard", "c.jsonl.zst")):
        monkeypatch.setattr(
            "poslab.config.corpora.find_spec", lambda library, none=missing: None if library == none else 1
        )
        assert refusal(name).endswith(f'needs {missing}: python -m pip install "poslab[corpora]"')


def test_a_run_on_documents(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "body": text}) for text in DOCUMENTS * 5]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    settings = (f"data.path={tmp_path / 'c.jsonl'}", f"data.cache_dir={tmp_path}/cache", f"run_dir={tmp_path}/run")
    summary = train(compose_config(*SMOKE, "data=text", *settings, "data.column=body", "evaluation.lengths=[8]"))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["documents"] == summary.documents == 150
    text = own_text(load_checkpoint(tmp_path / "run" / "checkpoints" / "best.safetensors"))
    assert (text.name, len(text.tokens)) == ("c.jsonl, validation part", summary.validation_tokens)
    assert len(text.ends) == 15  # a tenth of the documents


def large_corpus(file: Path, size: int) -> None:
    """A .jsonl of so many bytes: speeches of Shakespeare's, as many in a document as chance says."""
    speeches = SHAKESPEARE.read_text().split("\n\n")
    drawn = random.Random(1)
    with file.open("wb") as opened:
        while opened.tell() < size:
            starts = [drawn.randrange(len(speeches)) for _ in range(1000)]
            opened.write(as_lines(["\n\n".join(speeches[start : start + drawn.randrange(1, 40)]) for start in starts]))


@pytest.mark.slow
def test_a_large_corpus_trains_in_little_memory(tmp_path: Path) -> None:
    """60 MB of documents, in a full campaign a gigabyte: killed while it is tokenised, tokenised again, trained on."""
    size = 1_000_000_000 if FULL_CAMPAIGN else 60_000_000
    large_corpus(tmp_path / "large.jsonl", size)
    process = measured_training(tmp_path, "data.path=large.jsonl", "run_dir=killed")
    while not [*tmp_path.glob("cache/*.tmp")]:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    for run in ("first", "second"):
        _, grown = grown_by(measured_training(tmp_path, "data.path=large.jsonl", f"run_dir={run}"))
        print(f"campaign: {size / 1e6:.0f} MB of documents, {run} run: memory grown by {grown} KiB")
        assert grown < 1_000_000
    summary = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert summary["documents"] > size / 10_000
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".npy"}


@pytest.mark.slow
def test_a_process_that_has_loaded_nothing_yet_reads_a_copy_without_the_hub(hub: Path) -> None:
    script = "from poslab.config.hugging_face import on_this_machine\nwith on_this_machine(sys.argv[1]): pass"
    subprocess.run([sys.executable, "-c", f"import sys; {script}", str(hub)], check=True)


ODD_CARDS = {
    "no yaml": ("configs: [", None, "line 1 of its yaml"),
    "a tag": ("configs:\n- config_name: !!python/object/apply:os.system [true]", None, "could not determine"),
    "itself": ("configs: &a [*a]", None, "[Cc]ircular"),
    "a script": ("configs:\n- data_files: c.jsonl", "copy.py", "[Ss]cripts are no longer supported"),
}


@pytest.mark.parametrize("card", ODD_CARDS)
def test_an_odd_copy_of_a_data_set_is_refused_in_a_line(card: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (folder := tmp_path / "copy").mkdir()
    content, script, problem = ODD_CARDS[card]
    (folder / "README.md").write_text(f"---\n{content}\n---\n")
    (folder / "c.jsonl").write_bytes(as_lines(DOCUMENTS))
    if script:
        (folder / script).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(SettingError, match=rf"path=.*copy: .*can't be .*{problem}.*a quoted glob"):
        load_corpus(str(folder), gpt2, tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
def test_a_copy_of_a_data_set_that_names_files_elsewhere_contacts_nobody(name: str, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    card = "---\nconfigs:\n- data_files: {}\n---\n"
    (tmp_path / "README.md").write_text(card.format("c.jsonl"))
    (tmp_path / "c.jsonl").write_bytes(as_lines(DOCUMENTS))
    with on_this_machine(tmp_path):
        pass
    text = card.format(r'"http:\x2f\u002flocalhost:1/c.jsonl"')
    (tmp_path / name).write_text(text if name == "README.md" else text.replace("---\n", ""))
    with pytest.raises(SettingError, match=f"{name} names files elsewhere"), on_this_machine(tmp_path):
        pass
    # Where a user names the folder, it is data that nobody has hashed.
    with pytest.raises(SettingError, match=f"{name} names files elsewhere, http://localhost:1/c"):
        load_corpus(str(tmp_path), Characters(), tmp_path / "cache")


def test_other_addresses_of_a_card_are_no_files(tmp_path: Path) -> None:
    card = "---\nlicense_link: https://example.com/licence\nconfigs:\n- {config_name: a, data_files: c.jsonl}\n---\n"
    (folder := tmp_path / "copy").mkdir()
    (folder / "README.md").write_text(card)
    (folder / "c.jsonl").write_bytes(as_lines(DOCUMENTS))
    with on_this_machine(folder):
        assert load_corpus(str(folder), Characters(), tmp_path / "cache").documents == len(DOCUMENTS)


def test_a_copy_of_a_data_set_is_another_one_with_another_card(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder, card = tmp_path / "copy", "---\nconfigs:\n- {{config_name: default, data_files: {}}}\n---\n{}\n"
    for name in ("copy/a.jsonl", "copy/b.jsonl", "c.jsonl"):
        write_files(tmp_path, {name: name.removeprefix("copy/")[0]})
    load = partial(load_corpus, str(folder), gpt2, tmp_path / "cache")
    found = {}
    for name, words in (("a.jsonl", ""), ("b.jsonl", ""), ("a.jsonl", "Other words.")):
        (folder / "README.md").write_text(card.format(name, words))
        found[name, words] = (loaded := load()).sha256
        assert begins(loaded)[0] == name[0]
    first, second, reworded = found.values()
    assert first == reworded != second
    for outside in ("../c.jsonl", tmp_path / "c.jsonl"):
        (folder / "README.md").write_text(card.format(outside, ""))
        with refused("path", folder, "README.md", "c.jsonl"):
            load()
