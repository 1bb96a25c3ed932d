"""Texts and corpora of documents that several test files read, and writers of each format."""

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from common import REPOSITORY, compose_config

from poslab.errors import as_typed
from poslab.training.data import make_data

VERDICT = REPOSITORY / "data" / "the-verdict.txt"
SHAKESPEARE = REPOSITORY / "data" / "tinyshakespeare.txt"
LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
DOCUMENTS = [
    "The first one.",
    " begins with a space",
    "Schöne Grüße, 世界 😀\n\nnew paragraph\n",
    "ends in <|endoftext|>",
    "a" * 3000,
    *(f"Number {number} says {'word ' * (number % 7)}" for number in range(25)),
]


def as_lines(documents: Sequence[str], column: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, column: text}) + "\n" for text in documents).encode()


def as_csv(documents: Sequence[str], separator: str = ",") -> bytes:
    written = io.StringIO()
    csv.writer(written, delimiter=separator).writerows([("id", "text"), *(("1,5", text) for text in documents)])
    return written.getvalue().encode()


def as_zst(content: bytes) -> bytes:
    compress = pytest.importorskip("zstandard").ZstdCompressor().compress
    return compress(content[:100]) + compress(content[100:])  # two frames


def write_parquet(file: Path, documents: Sequence[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"id": range(len(documents)), "text": documents})
    pytest.importorskip("pyarrow.parquet").write_table(table, file, row_group_size=7)


def data_set(documents: Sequence[str]):
    return pytest.importorskip("datasets").Dataset.from_dict({"text": documents})


def write_arrow(file: Path, documents: Sequence[str]) -> None:
    data_set(documents).save_to_disk(saved := file.with_suffix(".saved"))
    next(saved.glob("*.arrow")).rename(file)
    shutil.rmtree(saved)


def write(encode: Callable[[Sequence[str]], bytes]) -> Callable[[Path, Sequence[str]], object]:
    return lambda file, documents: file.write_bytes(encode(documents))


WRITERS: dict[str, Callable[[Path, Sequence[str]], object]] = {
    "c.jsonl": write(as_lines),
    "c.ndjson": write(as_lines),
    "lines.json": write(as_lines),
    "array.json": write(lambda documents: json.dumps([{"text": text} for text in documents], indent=1).encode()),
    "c.json.gz": write(lambda documents: gzip.compress(as_lines(documents))),
    "c.jsonl.zst": write(lambda documents: as_zst(as_lines(documents))),
    "c.jsonl.xz": write(lambda documents: lzma.compress(as_lines(documents))),
    "c.csv": write(as_csv),
    "excel.csv": write(lambda documents: b"\xef\xbb\xbf" + as_csv(documents, ";")),
    "c.tsv.bz2": write(lambda documents: bz2.compress(as_csv(documents, "\t"))),
    "c.parquet": write_parquet,
    "c.arrow": write_arrow,
    "saved": lambda file, documents: data_set(documents).save_to_disk(file, num_shards=2),
}


def joined(documents: Sequence[str], gpt2: tiktoken.Encoding) -> list[int]:
    """Tokenise each document alone; the end-of-text token stands between them."""
    tokens: list[int] = []
    for text in documents:
        tokens += [*gpt2.encode_ordinary(text), gpt2.eot_token]
    return tokens[:-1]


def llm_c(tokens: list[int], magic: int = 20240520, dtype: str = "<u2", count: int | None = None) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = magic, 1, len(tokens) if count is None else count
    return header.tobytes() + np.array(tokens, dtype).tobytes()


def text_data(path: Path, cache: Path, context_length: int = 256, seed: int = 1, **settings: object) -> Any:
    """The data module of a text, with settings of `data`."""
    given = {"path": path, "cache_dir": cache, "stride": None} | settings
    typed = [f"data.{name}={as_typed(value)}" for name, value in given.items()]
    return make_data(compose_config("data=text", *typed, f"model.context_length={context_length}", f"seed={seed}"))
