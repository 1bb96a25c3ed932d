"""Texts that the rows of a batch read on and on: what each row reads, what it has read, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from common import ENDING, ENDLESS, RunScript, compose_config, make_scheme
from corpora import VERDICT, text_data
from refusals import refused
from runs_to_resume import TINY, content_of

from poslab.data.corpus import Split, load_corpus
from poslab.data.stream import Scans, Segments
from poslab.data.tokenizer import load_tokenizer
from poslab.data.windows import CoveringWindows
from poslab.errors import SettingError
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.files import other_text
from poslab.evaluation.losses import sliding_losses
from poslab.evaluation.stream_losses import consecutive_token_losses, scanned_losses
from poslab.model.decoder import GPT
from poslab.model.memory import Retrieval, decoder_of
from poslab.runs.checkpoint import load
from poslab.training.data.stream import StreamDataModule
from poslab.training.train import train

CONTEXT = 16


def streamed(path: Path, cache: Path, context_length: int = CONTEXT, **settings: object) -> StreamDataModule:
    settings = {"order": "stream", "encoding": "bytes", "batch_size": 3} | settings
    return text_data(path, cache, context_length, **settings)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Write documents of 1 to 40 bytes; the last two hundredths of them validate."""
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
    """Count the tokens from `first` to `start` that are of the document of the token at `start`."""
    document = sum(end <= start for end in ends)
    return sum(sum(end <= index for end in ends) == document for index in range(first, start))


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


@pytest.mark.parametrize("shares", [(0.2, 0.1), (0.5, 0.0)])
def test_ends_of_documents_in_a_whole_text(shares: tuple[float, float], documents: Path, tmp_path: Path) -> None:
    """Between two parts no end-of-text token stands."""
    corpus = load_corpus(str(documents), load_tokenizer("gpt2"), tmp_path, split=Split(*shares))
    data = {"path": str(documents), "validation_share": shares[0], "test_share": shares[1], "column": "text"}
    data |= dict.fromkeys(("name", "split", "dtype", "document_separator"))
    known = {"vocabulary": corpus.vocabulary, "config": {"data": data}, "data_sha256": corpus.sha256}
    text = other_text(cast(Any, SimpleNamespace(**known)), str(documents))
    assert text.ends is not None
    starts = [0, *text.ends.tolist()[:-1]]
    lines = [json.loads(line)["text"] for line in documents.read_text().splitlines()]
    assert len(starts) == len(lines)
    for start, end, line in zip(starts, text.ends.tolist(), lines, strict=True):
        assert corpus.vocabulary.decode(text.tokens[start:end].tolist()).removesuffix("<|endoftext|>") == line


def test_rows_of_several_processes_are_those_of_one(tmp_path: Path) -> None:
    whole = list(streamed(VERDICT, tmp_path, batch_size=4).train_dataloader())
    for rank in range(2):
        data = streamed(VERDICT, tmp_path, batch_size=2)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2)
        for part, batch in zip(data.train_dataloader(), whole, strict=True):
            assert torch.equal(part.tokens, batch.tokens[rank::2])
            assert torch.equal(part.read, batch.read[rank::2])


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


def small_model(memory_length: int, scheme: str = ENDLESS, retrieval: Retrieval | None = None) -> GPT:
    torch.manual_seed(3)
    sizes = {"vocab_size": 256, "context_length": CONTEXT, "embed_dim": 16, "num_layers": 2, "num_heads": 2}
    memory = {"memory_length": memory_length, "retrieval": retrieval}
    return decoder_of(make_scheme(scheme), **sizes, **memory, init_std=0.5).eval()


ENDS = torch.tensor([40, 41, 200, 333])


@pytest.mark.parametrize("before", [1, 2, 5])
@pytest.mark.parametrize("count", [None, 1, 9, 20])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_scan_judges_every_window_once(before: int, count: int | None, rows: int) -> None:
    windows = CoveringWindows(torch.arange(400), CONTEXT, CONTEXT)  # 25, the last one not full
    scans = Scans(windows, rows, before, ENDS, count)
    judged = []
    for scan in map(scans.__getitem__, range(len(scans))):
        for row in range(scan.numbers.shape[1]):
            steps = [step for step in zip(*(part[:, row] for part in scan), strict=True) if 0 <= step[0] < len(windows)]
            own = [number for number, _, targets, _ in steps if (targets != -100).any()]
            judged += [int(number) for number in own]
            lead = [int(number) for number, *_ in steps if number < own[0]]
            assert len(lead) == min(before, int(own[0]))  # windows that only fill memory
            begin = min([*lead, int(own[0])]) * CONTEXT
            for number, tokens, targets, read in steps:
                if number <= own[-1]:
                    assert torch.equal(tokens, windows[int(number)][1])
                    assert int(read) == naive_read(ENDS.tolist(), int(number) * CONTEXT, begin)
                if number in own:
                    assert torch.equal(targets, windows[int(number)][2])
    assert judged == list(range(25 if count is None else count))
    with pytest.raises(IndexError):
        scans[len(scans)]


def test_rows_change_no_figure() -> None:
    windows = CoveringWindows(torch.arange(700) % 251, CONTEXT, CONTEXT)
    model = small_model(CONTEXT)
    one, several = (
        {number: row for i in range(len(scans)) for number, row in scanned_losses(model, scans[i]).items()}
        for scans in (Scans(windows, rows, 1) for rows in (1, 4))
    )
    assert one.keys() == several.keys() == set(range(len(windows)))
    assert sum(count for _, count in one.values()) == 699
    assert [one[n] for n in sorted(one)] == [pytest.approx(several[n], abs=1e-4) for n in sorted(one)]


@pytest.mark.parametrize("memory_length", [7, CONTEXT, 50])
def test_losses_with_memory_are_those_of_reading_on(memory_length: int) -> None:
    """A text that is one piece: no memory is begun anew but where a document ends before a window."""
    torch.manual_seed(1)
    text, model = torch.randint(256, (125,)), small_model(memory_length, "fire")  # counts positions
    ends, memory = ENDS[:2], model.empty_memory(1)
    expected = []
    for start in range(0, 124, CONTEXT):
        read = naive_read(ends.tolist(), start, 0)
        segment = text[start : start + CONTEXT + 1]
        with torch.no_grad():
            hidden, memory = model.hidden_with_memory(segment[None, :-1], memory.restarted(torch.tensor([read])))
            logits = hidden @ model.token_embedding.weight.T
        expected.append(torch.nn.functional.cross_entropy(logits[0], segment[1:], reduction="none"))
    found = consecutive_token_losses(model, text, CONTEXT, ends)
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=1e-4)
    without = sliding_losses(model, text, CONTEXT, CONTEXT).losses
    torch.testing.assert_close(found[:CONTEXT], without[:CONTEXT], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found[CONTEXT:], without[CONTEXT:], atol=1e-2)
    of_one_document = consecutive_token_losses(model, text, CONTEXT)
    assert not torch.allclose(found, of_one_document, atol=1e-2)


def test_the_same_targets_with_any_memory() -> None:
    torch.manual_seed(1)
    text, model = torch.randint(256, (300,)), small_model(CONTEXT)
    found = evaluate(model, text, [CONTEXT], memory_lengths=[4 * CONTEXT, 0, CONTEXT], ends=ENDS)
    losses = found.memory_losses
    assert [*losses] == ["0", str(CONTEXT), str(4 * CONTEXT)]
    assert losses["0"] == found.lengths[0].loss
    own = consecutive_token_losses(model, text, CONTEXT, ENDS)
    assert losses[str(CONTEXT)] == pytest.approx(float(own.mean()), abs=1e-5)
    assert len({*losses.values()}) == 3
    assert found.metrics["memory_loss"] == losses
    without = small_model(0)  # a plain GPT of the same weights
    assert evaluate(without, text, [], memory_lengths=[*map(int, losses)], ends=ENDS).memory_losses == losses
    with refused("memory_length", "16"):
        evaluate(small_model(0, ENDING), text, [CONTEXT], memory_lengths=[16])


def test_what_retrieves_reads_on_by_a_scheme_that_ends() -> None:
    text = torch.arange(200) % 97
    model = small_model(0, ENDING)
    (ended,) = evaluate(model, text, [2 * CONTEXT]).lengths
    assert ended.loss is None
    retrieving = small_model(0, ENDING, Retrieval(layer=1, size=64, k=4))
    (found,) = evaluate(retrieving, text, [2 * CONTEXT]).lengths
    assert found.loss is not None
    assert found.note == ""


MEMORY = [*TINY, f"pos={ENDLESS}", "data.order=stream", "model.memory_length=24"]


def test_a_run_with_memory(tmp_path: Path) -> None:
    run, short = tmp_path / "run", tmp_path / "short"
    summary = train(compose_config(*MEMORY, "trainer.limit_val_batches=null", "data.test_share=0.1", f"run_dir={run}"))
    assert summary.val_loss_tokens == summary.validation_tokens - 1
    text = {"encoding": "gpt2", "vocabulary": "observed", "test_share": 0.1}
    model, corpus = load(run), streamed(VERDICT, tmp_path, **text).corpus
    by_hand = consecutive_token_losses(model, corpus.validation, 16).mean(dtype=torch.float64)
    assert summary.best_val_loss == pytest.approx(float(by_hand), abs=1e-5)
    of_test = consecutive_token_losses(model, corpus.test, 16).mean(dtype=torch.float64)
    assert summary.test_loss == pytest.approx(float(of_test), abs=1e-5)
    memory = content_of(run)["StreamDataModule"]["memory"]
    assert memory["inputs"].shape == (2, 2, 24, 16)
    assert memory["read"].tolist() == [5 * 16] * 2
    # As many targets of a part of the validation as without memory.
    assert train(compose_config(*MEMORY, f"run_dir={short}")).val_loss_tokens == 2 * 2 * 16


def test_evaluation_with_other_memories(run_script: RunScript, trained: Callable[..., Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained(*MEMORY), tmp_path / "run"))
    code, output, errors = run_script("evaluate", f"ckpt={run}", "lengths=16,64", "model.memory_length=0,40")
    assert (code, errors) == (0, "")
    rows = {row.split()[0]: row for row in output.partition("gain: what they")[0].splitlines() if row.strip()}
    written = json.loads((run / "evaluation.json").read_text())
    assert [*written["memory_losses"]] == ["0", "40"]
    assert rows["0"].split()[1] == f"{written['memory_losses']['0']:.4f}"
    assert written["memory_losses"]["0"] == written["lengths"][0]["loss"]
    code, output, _ = run_script("evaluate", f"ckpt={run}", "lengths=16")  # the usual ones; those measured stay
    assert code == 0
    assert re.search(r"^ +24 .* as trained$", output, flags=re.MULTILINE)
    assert [*json.loads((run / "evaluation.json").read_text())["memory_losses"]] == ["0", "16", "24", "40", "64"]
