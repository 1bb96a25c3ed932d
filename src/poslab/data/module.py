"""The Lightning data module: which windows are trained on, which validate, and in which order they come."""

from collections.abc import Iterator
from pathlib import Path

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from poslab.config import DataConfig
from poslab.data.corpus import Corpus, load_corpus
from poslab.data.files import default_cache_dir
from poslab.data.tokenizer import load_tokenizer
from poslab.data.windows import SlidingWindowDataset
from poslab.errors import SettingError

Batches = DataLoader[tuple[Tensor, Tensor]]


class Shuffled(Sampler[int]):
    """All indices in random order, as torch's RandomSampler draws them, but without making a list of them all: with
    millions of windows that list would be larger than the text."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        self.count = count
        self.generator = generator

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.count, generator=self.generator)
        for start in range(0, self.count, 1 << 16):
            yield from order[start : start + (1 << 16)].tolist()
        # RandomSampler ends with a draw that it doesn't use; with it, a seed gives the batches of `shuffle=True`.
        torch.randperm(self.count, generator=self.generator)


class TextDataModule(LightningDataModule):
    """Windows of context_length tokens: overlapping by `stride` and shuffled in training, side by side in validation.

    The order of training windows comes from a generator of its own, so it depends on the seed and on nothing that the
    model draws. Raises SettingError for a text that can't be read, or is too short for one window on either side.
    """

    def __init__(self, config: DataConfig, context_length: int, seed: int) -> None:
        super().__init__()
        self.config = config
        self.context_length = context_length
        cache_dir = Path(config.cache_dir) if config.cache_dir else default_cache_dir()
        try:
            tokenizer = load_tokenizer(config.encoding)
            self.corpus: Corpus = load_corpus(config.path, tokenizer, cache_dir, config.vocabulary == "observed")
        except SettingError as error:
            raise error.prefixed("data") from error
        self.vocabulary = self.corpus.vocabulary
        self._check_length()
        self.train_windows = SlidingWindowDataset(
            self.corpus.train, context_length, config.stride if config.stride is not None else context_length
        )
        self.validation_windows = SlidingWindowDataset(self.corpus.validation, context_length, context_length)
        self.order = torch.Generator().manual_seed(seed)

    def train_dataloader(self) -> Batches:
        return DataLoader(
            self.train_windows,
            self.config.batch_size,
            sampler=Shuffled(len(self.train_windows), self.order),
            generator=self.order,
            num_workers=self.config.num_workers,
        )

    def val_dataloader(self) -> Batches:
        return DataLoader(self.validation_windows, self.config.batch_size)

    def _check_length(self) -> None:
        train, validation = len(self.corpus.train), len(self.corpus.validation)
        longest = min(train, validation) - 1
        if self.context_length <= longest:
            return
        side = "training" if train < validation else "validation"
        fits = f"up to {longest} would fit" if longest >= 1 else "no context would fit, take a longer text"
        problem = f"the {side} part of {self.corpus.name} has only {min(train, validation)} tokens; {fits}"
        raise SettingError("model.context_length", self.context_length, problem)
