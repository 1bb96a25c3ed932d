"""Helpers for tests of evaluation: models with large weights, random texts, run folders, malicious pickles."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from common import compose_config, make_scheme
from omegaconf import OmegaConf
from torch import Tensor

from poslab import GPT
from poslab.model.memory import decoder_of
from poslab.runs.checkpoint_files import describe, save_weights
from poslab.training.data.text import TextDataModule

VOCAB, CONTEXT = 23, 12


@cache
def lively_model(name: str, context: int = CONTEXT, dropout: float = 0.0) -> GPT:
    """Weights so large that every place in a window has a loss of its own."""
    torch.manual_seed(1)
    model = GPT(
        make_scheme(name),
        vocab_size=VOCAB,
        context_length=context,
        embed_dim=16,
        num_layers=2,
        num_heads=2,
        dropout=dropout,
    )
    enlarge(model)
    return model.eval()


def enlarge(model: GPT) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)


def random_text(count: int) -> Tensor:
    return torch.randint(0, VOCAB, (count,), dtype=torch.int32, generator=torch.Generator().manual_seed(count))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def make_run(folder: Path, *overrides: str) -> Path:
    """A run folder as training leaves it, but of random weights."""
    config = compose_config("experiment=smoke", "data.vocabulary=observed", *overrides)
    data = TextDataModule(config)
    model = decoder_of(config.pos, vocab_size=data.vocabulary.size, **config.model.arguments)
    enlarge(model)
    (folder / "checkpoints").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(config.plain), folder / "config.yaml")
    state = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    content = {"poslab": describe(config, data.corpus.vocabulary, data.corpus.sha256), "state_dict": state}
    torch.save(content, folder / "checkpoints" / "last.ckpt")
    save_weights(folder / "checkpoints" / "best.safetensors", state, content["poslab"])
    return folder


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.file),)
