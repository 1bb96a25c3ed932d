"""Texts that the rows of a batch read on and on: what each row reads, what it has read, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conftest import REPOSITORY, compose_config
from poslab.data.module import TextDataModule
from poslab.data.orders import InRows
from poslab.data.parts import Part
from poslab.data.stream import Segments, document_start
from poslab.errors import SettingError, UserError
from poslab.settings.schema import DataConfig

VERDICT = REPOSITORY / "data" / "the-verdict.txt"
CONTEXT = 16


def streamed(path: Path, cache: Path, context_length: int = CONTEXT, **settings: object) -> TextDataModule:
    settings = {"order": "stream", "encoding": "bytes", "batch_size": 3} | settings
    return TextDataModule(DataConfig(str(path), cache_dir=str(cache), **settings), context_length, seed=1)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Of 1 to 40 bytes; the last two hundredths of them validate."""
    lines = [json.dumps({"text": "abcdefghij"[n % 10] * (1 + 7 * n % 40)}) for n in range(100)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    return tmp_path / "c.jsonl"


def test_each_row_reads_a_stretch_of_its_own_to_the_end(tmp_path: Path) -> None:
    data = streamed(VERDICT, tmp_path)
    batches = list(data.train_dataloader())
    assert all(isinstance(batch, Segments) for batch in batches)
    steps = len(data.train_windows) // 3
    assert len(batches) == len(data.train_dataloader()) == steps
    read = torch.cat([batch.tokens for batch in batches], 1)  # (3, steps T)
    assert torch.equal(read.flatten(), data.corpus.train[: 3 * steps * CONTEXT].long())
    for batch in batches:
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    assert torch.equal(torch.stack([batch.read for batch in batches])[:, 0], torch.arange(steps) * CONTEXT)
    again = list(data.train_dataloader())  # every epoch is the same
    assert all(torch.equal(a, b) for pair in zip(batches, again, strict=True) for a, b in zip(*pair, strict=True))


def naive_read(ends: list[int], start: int, first: int) -> int:
    """How many tokens before `start` and from `first` on are of the document that the one at `start` is of."""
    document = sum(end <= start for end in ends)
    return sum(sum(end <= place for end in ends) == document for place in range(first, start))


def test_what_a_row_has_read_is_of_one_document(documents: Path, tmp_path: Path) -> None:
    data = streamed(documents, tmp_path / "cache", context_length=5, validation_share=0.02)
    ends = data.corpus.ends["train"].tolist()
    assert ends[-1] == len(data.corpus.train)
    steps = len(data.train_windows) // 3
    for step, batch in enumerate(data.train_dataloader()):
        starts = [(row * steps + step) * 5 for row in range(3)]
        assert batch.read.tolist() == [naive_read(ends, start, row * steps * 5) for row, start in enumerate(starts)]
    assert 0 in torch.stack([batch.read for batch in data.train_dataloader()])[1:]


@pytest.mark.parametrize("encoding", ["gpt2", "bytes"])
def test_ends_of_documents_in_every_part(encoding: str, documents: Path, tmp_path: Path) -> None:
    corpus = streamed(documents, tmp_path, encoding=encoding, validation_share=0.2, test_share=0.1).corpus
    texts = [json.loads(line)["text"] for line in documents.read_text().splitlines()]
    encode = corpus.vocabulary.encode
    lengths = [len(encode(text)) + (encoding == "gpt2") for text in texts]  # the end-of-text token is of its document
    for part, (first, stop) in {"train": (0, 70), "validation": (70, 90), "test": (90, 100)}.items():
        ends = torch.tensor(lengths[first:stop]).cumsum(0)
        assert torch.equal(corpus.ends[part], ends)
        assert len(getattr(corpus, part)) == int(ends[-1]) - (encoding == "gpt2")  # but that of the last is left out


def test_where_a_document_begins() -> None:
    ends = torch.tensor([3, 4, 9])
    assert [document_start(ends, place) for place in range(9)] == [0, 0, 0, 3, 4, 4, 4, 4, 4]
    assert document_start(None, 7) == document_start(ends[:0], 7) == 0


def test_the_order_goes_on_anywhere() -> None:
    whole = list(InRows(23, 4))
    assert whole == [0, 5, 10, 15, 1, 6, 11, 16, 2, 7, 12, 17, 3, 8, 13, 18, 4, 9, 14, 19]
    order = InRows(23, 4)
    order.go_on(7, 8)
    assert list(order) == whole[8:]
    assert (order.epoch, list(order)) == (8, whole)


def test_a_part_of_a_batch_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(streamed(VERDICT, tmp_path, batch_size=4).train_dataloader())
    for rank in range(2):
        monkeypatch.setattr(TextDataModule, "place", (rank, 2))
        parts = list(streamed(VERDICT, tmp_path, batch_size=4).train_dataloader())
        rows = slice(2 * rank, 2 * rank + 2)
        for part, batch in zip(parts, whole, strict=True):
            assert isinstance(part, Part)
            assert isinstance(part.read, Tensor)
            assert torch.equal(part.tokens, batch.tokens[rows])
            assert torch.equal(part.read, batch.read[rows])


def test_one_batch_again_and_again_remembers_nothing(tmp_path: Path) -> None:
    data = streamed(VERDICT, tmp_path, same_batch=True)
    first, *others = data.train_dataloader()
    assert first.read.tolist() == [0, 0, 0]
    assert len({int(window.sum()) for window in first.tokens}) == 3
    assert others
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_a_stream_that_is_too_short(tmp_path: Path) -> None:
    windows = len(streamed(VERDICT, tmp_path).train_windows)
    assert len(streamed(VERDICT, tmp_path, batch_size=windows).train_dataloader()) == 1
    problem = rf"^data.batch_size={windows + 1}: data.order=stream gives each row .* up to {windows} rows fit$"
    with pytest.raises(SettingError, match=problem):
        streamed(VERDICT, tmp_path, batch_size=windows + 1)


def test_windows_that_overlap_are_no_stream() -> None:
    with pytest.raises(UserError, match=r"^data.stride=64: of windows that data.order=stream reads .* must be null$"):
        compose_config("data.order=stream")
    assert compose_config("data.order=stream", "data.stride=null").data.order == "stream"
