"""Texts and corpora of documents that several test files read, and writers of each format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from common import REPOSITORY

VERDICT = REPOSITORY / "data" / "the-verdict.txt"
SHAKESPEARE = REPOSITORY / "data" / "tinyshakespeare.txt"
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
    """Tokenise each document alone; the end-of-text token stands between them."""
    tokens: list[int] = []
    for text in documents:
        tokens += [*gpt2.encode_ordinary(text), gpt2.eot_token]
    return tokens[:-1]


def llm_c(
    tokens: list[int], magic: int = 20240520, version: int = 1, dtype: str = "<u2", count: int | None = None
) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens) if count is None else count
    return header.tobytes() + np.array(tokens, dtype).tobytes()
