"""Lightning data module of a text: windows, their order, and losses of baselines that need no training."""

import math
import multiprocessing
from collections.abc import Sequence
from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, Sampler, SequentialSampler, Subset

from poslab.config.schema import DataConfig
from poslab.data.batch_shards import BatchShard, BatchShards, shard_indices
from poslab.data.corpus import corpus_of
from poslab.data.stream import Scan, Scans, Segments, StreamedWindows, segments_before
from poslab.data.tokenizer import AnyVocabulary
from poslab.data.windows import ContiguousRows, CoveringWindows, ResumableSampler, Shuffled, SlidingWindowDataset
from poslab.errors import SettingError

Batches = DataLoader[tuple[Tensor, Tensor]] | DataLoader[Segments] | DataLoader[BatchShard]


class DataModule(LightningDataModule):
    """Data of a run, be it a text or a task: batches and their order, vocabulary, sizes."""

    name: str
    sha256: str  # of everything that decides which tokens come
    vocabulary: AnyVocabulary
    order: ResumableSampler
    training_length: int  # the longest one of training
    train_tokens: int | None = None  # of a text
    validation_tokens: int | None = None
    test_tokens: int | None = None
    documents: int | None = None  # of a text that is made of some
    validation_batches: int | None = None  # where not all are wanted

    @property
    def rank_and_world_size(self) -> tuple[int, int]:
        """Return (rank, world size) of this process among those that share the batches."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def shard_indices(self, batches: int) -> Sequence[int]:
        """Return the numbers of the validation batches that this process takes."""
        return shard_indices(
            batches if self.validation_batches is None else self.validation_batches, *self.rank_and_world_size
        )

    @property
    def description(self) -> str:
        """Describe the data in one line."""
        raise NotImplementedError

    @property
    def untrained_losses(self) -> dict[str, float]:
        """Return the held-out losses of models that need no training, by name; empty where there are none."""
        return {}

    def resume_at(self, epoch: int, batches: int) -> None:
        """Make this epoch come next without its first batches."""
        raise NotImplementedError

    def count_validation_batches(self) -> int:
        """Return the number of batches in a whole validation, as `trainer.limit_val_batches` counts them."""
        return len(self.val_dataloader())


class TextDataModule(DataModule):
    """Windows of context_length tokens: overlapping by `stride` and shuffled in training, side by side in validation.

    The order of training windows comes from a generator of its own (`order`), so it depends on the seed and on nothing
    that the model draws. With data.order=stream, a batch is `Segments`, and each of its rows continues the
    batch before. Raises SettingError for a text that can't be read, or is too short for one window in one of its
    parts, or in one of the rows.
    """

    def __init__(self, config: DataConfig, context_length: int, seed: int, reach: int = 0) -> None:
        """Read the text. reach: tokens before a window that the model sees; if any, validation batches are `Scan`s."""
        super().__init__()
        self.config = config
        self.reach = reach
        self.context_length = self.training_length = context_length
        self.corpus = corpus_of(config)
        self.name, self.sha256, self.vocabulary = self.corpus.name, self.corpus.sha256, self.corpus.vocabulary
        self.train_tokens, self.validation_tokens = len(self.corpus.train), len(self.corpus.validation)
        self.test_tokens = len(self.corpus.test) if config.test_share or len(self.corpus.test) else None
        self.documents = self.corpus.documents
        self._check_length()
        stride = context_length if config.stride is None else config.stride
        self.train_windows = SlidingWindowDataset(self.corpus.train, context_length, stride)
        self.validation_windows = CoveringWindows(self.corpus.validation, context_length, context_length)
        self.order: ResumableSampler = Shuffled(len(self.train_windows), seed)
        if config.order == "stream":
            self._check_rows()
            self.order = ContiguousRows(len(self.train_windows), config.batch_size)

    @property
    def description(self) -> str:
        test = f" and {self.test_tokens:,} test" if self.test_tokens else ""
        parts = f"{self.train_tokens:,} training{',' if test else ' and'} {self.validation_tokens:,} validation{test}"
        documents = f"{self.documents:,} document{'s' * (self.documents != 1)}, " if self.documents is not None else ""
        return f"{self.name}, {documents}{parts} {self.corpus.vocabulary.unit}s"

    @property
    def untrained_losses(self) -> dict[str, float]:
        _, judged_by = self.corpus.held_out
        return untrained_losses(self.corpus.train, judged_by, self.vocabulary.size)

    def resume_at(self, epoch: int, batches: int) -> None:
        self.order.resume_at(epoch, batches * self.config.batch_size)

    def train_dataloader(self) -> Batches:
        size, windows = self.config.batch_size, self.train_windows
        stream = isinstance(self.order, ContiguousRows)
        source: Dataset[Any] = StreamedWindows(windows, size, self.corpus.ends.get("train")) if stream else windows
        if self.config.same_batch:
            distance = len(windows) // size if stream else 1
            first = Subset(source, range(0, min(size, len(windows)) * distance, distance))
            repeated: ConcatDataset[Any] = ConcatDataset([first] * -(-len(windows) // size))
            return self._loader(repeated, SequentialSampler(repeated), len(first))
        return self._loader(source, self.order, size)

    def _loader(self, windows: Dataset[Any], order: Sampler[int], size: int) -> Batches:
        rank, world_size = self.rank_and_world_size
        settings: dict[str, Any] = {"num_workers": self.config.num_workers}
        settings["generator"] = torch.Generator()  # or it would draw from the one that dropout draws from
        if self.config.num_workers and "fork" in multiprocessing.get_all_start_methods():
            # Tokens in a file can't be handed to a process of another kind, which is what jobs of a sweep would start.
            settings["multiprocessing_context"] = "fork"
        if world_size == 1:
            return DataLoader(windows, size, sampler=order, **settings)
        batches = BatchSampler(order, size, drop_last=False)
        parts = BatchShards(windows, rank, world_size)
        return DataLoader(parts, batch_size=None, sampler=batches, **settings)

    def count_validation_batches(self) -> int:
        return -(-len(self.validation_windows) // self.config.batch_size)

    def val_dataloader(self) -> DataLoader[tuple[int, Tensor, Tensor]] | DataLoader[Scan]:
        count, size = len(self.validation_windows), self.config.batch_size
        if self.reach:
            wanted = self.validation_batches * size if self.validation_batches else None
            before, ends = segments_before(self.context_length, self.reach), self.corpus.ends.get("validation")
            scans = Scans(self.validation_windows, size, before, ends, wanted)
            own = shard_indices(len(scans), *self.rank_and_world_size)
            return DataLoader(scans, batch_size=None, sampler=own, generator=torch.Generator())
        batches: Any = [range(n * size, min(count, (n + 1) * size)) for n in self.shard_indices(-(-count // size))]
        return DataLoader(self.validation_windows, batch_sampler=batches)

    def _check_rows(self) -> None:
        rows, windows = self.config.batch_size, len(self.train_windows)
        if rows > windows:
            source = f"the training part of {self.corpus.name}, which has {windows} times model.context_length"
            problem = f"data.order=stream gives each row a stretch of {source}: up to {windows} rows fit"
            raise SettingError("data.batch_size", rows, problem)

    def _check_length(self) -> None:
        of_parts = {"validation": self.validation_tokens, "training": self.train_tokens, "test": self.test_tokens}
        tokens, part = min((tokens, part) for part, tokens in of_parts.items() if tokens is not None)
        if self.context_length < tokens:
            return
        fits = f"up to {tokens - 1} would fit" if tokens > 1 else "no context would fit, take a longer text"
        unit = f"{self.corpus.vocabulary.unit}{'s' * (tokens != 1)}"
        problem = f"the {part} part of {self.corpus.name} has only {tokens} {unit}; {fits}"
        raise SettingError("model.context_length", self.context_length, problem)


# Baselines that need no training

_MOST = 1 << 21  # tokens that are counted, and that are predicted: more would change little, and take memory


def untrained_losses(train: Tensor, validation: Tensor, vocabulary_size: int) -> dict[str, float]:
    """Return the losses of models that a decoder must beat, by name, in nats per token, on `validation` (N,).

    uniform: every token is as likely as any other; unigram: as likely as it is frequent in `train`; bigram: ... after
    the token before it. Unseen events get their share by Witten and Bell's rule (1991, method C): N counts of which T
    are different tokens leave the weight T / (N + T) to the next simpler model.

        p(w)     = (count(w) + T / V) / (N + T)
        p(w | h) = (count(h w) + T(h) p(w)) / (count(h) + T(h))          T(h): different tokens seen after h

    train, validation: ids below vocabulary_size, at least 2 each; of longer texts the first two million count.
    """
    train, validation = (tokens[:_MOST].to(torch.int64) for tokens in (train, validation))
    before, token = validation[:-1], validation[1:]  # (N - 1,)
    counts = train.bincount(minlength=vocabulary_size).double()
    types = float((counts > 0).sum())
    unigram = (counts + types / vocabulary_size) / (len(train) + types)  # (V,)

    pairs, pair_counts = (train[:-1] * vocabulary_size + train[1:]).unique(return_counts=True)  # ascending
    contexts = train[:-1].bincount(minlength=vocabulary_size)  # (V,): how often each token has a next one
    followers = (pairs // vocabulary_size).bincount(minlength=vocabulary_size)  # (V,): how many different ones
    pair = before * vocabulary_size + token
    index = torch.searchsorted(pairs, pair).clamp(max=len(pairs) - 1)
    seen = torch.where(pairs[index] == pair, pair_counts[index], 0)  # (N - 1,)
    # After a token that training never saw before another one, only the unigram is left.
    bigram = torch.where(
        contexts[before] > 0,
        (seen + followers[before] * unigram[token]) / (contexts[before] + followers[before]).clamp(min=1),
        unigram[token],
    )
    return {
        "uniform": math.log(vocabulary_size),
        "unigram": -float(unigram[token].log().mean()),
        "bigram": -float(bigram.log().mean()),
    }
