"""data.documents=apart: documents that share a window are each a text of their own, in training and evaluation."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from common import ENDING, ENDLESS, SMOKE, compose_config, moved
from corpora import VERDICT, text_data
from torch.nn import functional as F

from poslab import GPT
from poslab.errors import SettingError
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.stream_losses import consecutive_token_losses
from poslab.model.memory import MemoryGPT
from poslab.positions.rope import RoPE
from poslab.runs.load import read_run
from poslab.training.train import train

TEXTS = ["one two three", "a longer one, of several words and more", "short", *("line " * n for n in range(1, 30))]
LENGTH = 16
SIZES = {"vocab_size": 257, "context_length": LENGTH, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "dropout": 0.0}


def documents_file(folder: Path) -> Path:
    file = folder / "documents.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return file


def token_losses(model: GPT, tokens: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the losses of all tokens that another of their document stands before, in windows of LENGTH."""
    pieces = []
    for start in range(0, len(tokens) - 1, LENGTH):
        stop = min(start + LENGTH, len(tokens) - 1)
        edges = sorted({start, stop, *(end for end in ends.tolist() if start < end < stop)})
        for begin, end in pairwise(edges):
            document = tokens[begin : min(end + 1, len(tokens))].long()
            if end in ends.tolist():  # what follows is another document's
                document = document[:-1]
            if len(document) > 1:
                logits = model(document[None, :-1])[0]
                pieces.append(F.cross_entropy(logits.float(), document[1:], reduction="none"))
    return torch.cat(pieces)


@torch.no_grad()
@pytest.mark.parametrize("order", ["shuffled", "stream"])
def test_losses_are_those_of_each_document_alone(order: str, tmp_path: Path) -> None:
    settings = {"documents": "apart", "order": order, "encoding": "bytes", "batch_size": 2}
    data = text_data(documents_file(tmp_path), tmp_path, LENGTH, **settings)
    model = moved(GPT(RoPE(), **SIZES), 0.3).eval()
    corpus = data.corpus
    expected = token_losses(model, corpus.validation, corpus.ends["validation"])
    sums = sum(data.validation_sums(model, batch) for batch in data.val_dataloader())
    assert sums[1] == len(expected)
    assert torch.allclose(sums[0], expected.double().sum(), rtol=1e-5)
    found = consecutive_token_losses(model, corpus.validation, LENGTH, corpus.ends["validation"], apart=True)
    assert torch.allclose(found, expected, atol=1e-4)
    for tokens, targets, *others in data.train_dataloader():
        losses = [
            F.cross_entropy(model(tokens[:1, at])[0], targets[0, at])
            for at in ((others[-1][0] == number) for number in others[-1][0].unique())
            if (targets[0, at] != -100).any()
        ]
        whole = model(tokens, documents=others[-1])
        assert all(loss.isfinite() for loss in losses)
        assert torch.allclose(
            data.loss(model, (tokens, targets, *others)), F.cross_entropy(whole.flatten(0, 1), targets.flatten())
        )
    (result,) = evaluate(model, corpus.validation, [LENGTH], ends=corpus.ends["validation"], apart=True).lengths
    assert result.loss == pytest.approx(float(expected.mean()), rel=1e-5)
    assert all(loss == loss for loss in result.by_position)


@torch.no_grad()
def test_memory_reaches_no_other_document(tmp_path: Path) -> None:
    settings = {"documents": "apart", "order": "stream", "encoding": "bytes", "batch_size": 2}
    data = text_data(documents_file(tmp_path), tmp_path, LENGTH, **settings)
    model = moved(MemoryGPT(RoPE(), memory_length=LENGTH, **SIZES), 0.3).eval()
    tokens, ends = data.corpus.train[:200], data.corpus.ends["train"]
    ends = ends[ends < 200]
    found = consecutive_token_losses(model, tokens, LENGTH, ends, apart=True)
    alone, starts = [], [0, *ends.tolist()]
    for begin, end in zip(starts, [*ends.tolist(), 200], strict=True):
        document = tokens[begin:end].long()[None]
        memory, offset, read = model.empty_memory(1), begin, []
        while offset < end:  # segments begin where the whole text's do
            stop = min(end, (offset // LENGTH + 1) * LENGTH)
            hidden, memory = model.hidden_with_memory(document[:, offset - begin : stop - begin], memory)
            read.append(hidden)
            offset = stop
        logits = F.linear(torch.cat(read, 1), model.head_weight)[0, :-1]
        alone.append(F.cross_entropy(logits, document[0, 1:], reduction="none"))
    assert torch.allclose(found, torch.cat(alone), atol=1e-4)


def test_a_text_of_one_document_has_none_to_keep_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^data\.documents=apart"):
        text_data(VERDICT, tmp_path, LENGTH, documents="apart")


@pytest.mark.parametrize("more", [[], ["data.order=stream", "model.memory_length=16"]])
def test_a_run_trains_and_evaluates(more: list[str], tmp_path: Path) -> None:
    settings = [
        "experiment=smoke",
        "trainer=cpu",
        "data=text",
        f"data.path={documents_file(tmp_path)}",
        "data.documents=apart",
        "data.encoding=bytes",
        "data.stride=null",
        "data.test_share=0.2",
        f"model.context_length={LENGTH}",
        f"evaluation.lengths=[{LENGTH},32]",
        f"pos={ENDLESS}",
        f"run_dir={tmp_path / 'run'}",
    ]
    train(compose_config(*settings, *more))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["best_val_loss"] > 0
    assert summary["test_loss"] > 0


def test_a_run_from_before_is_compared_with_one_of_now(trained: Callable[..., Path], tmp_path: Path) -> None:
    for name in (ENDLESS, ENDING):
        shutil.copytree(trained(*SMOKE, f"pos={name}"), tmp_path / name)
    config = tmp_path / ENDING / "config.yaml"
    kept = [line for line in config.read_text().splitlines(keepends=True) if "documents: joined" not in line]
    config.write_text("".join(kept))
    first, second = (read_run(tmp_path / name) for name in (ENDLESS, ENDING))
    assert first.config["data"] == second.config["data"]
