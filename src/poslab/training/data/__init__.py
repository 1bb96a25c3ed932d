"""Data of a run, as Lightning data modules that bring what a trainer asks of them: loss, validation, samples, tests.

text.py    windows of a text, shuffled
stream.py  a text, or a task, that is read on from segment to segment
task.py    fresh examples of a task at every step
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from pytorch_lightning import Callback, LightningDataModule
from torch import Tensor

from poslab.config.train import TrainConfig
from poslab.data.tokenizer import AnyVocabulary
from poslab.data.windows import SeekableSampler
from poslab.metric import LOSS, Metric
from poslab.model.decoder import GPT


class DataModule(LightningDataModule):
    """Data of a run: batches and their order, and what a model's output is worth on them.

    figures: metrics of every validation beside the loss. measures: of the whole run, first the one by which such runs
    are compared. prompt: tokens (T,) that samples continue; positions: theirs, if not 0, 1, 2, ...
    """

    name: str
    sha256: str  # of everything that decides which tokens come
    vocabulary: AnyVocabulary
    order: SeekableSampler  # of training
    training_length: int  # tokens, or of a task the length, of the longest text of training
    figures: ClassVar[tuple[Metric, ...]]
    number_of_sums: ClassVar[int] = 2
    measures: list[Metric]
    prompt: list[int]
    positions: Tensor | None = None

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.judges_none = False  # of the batches of a validation, because other processes judge them all
        self.config = config

    @property
    def processes(self) -> int:
        """Return how many processes share the data."""
        return self.order.world_size

    def tokens_of_all(self, batch: Any) -> int:
        """Return the tokens that all processes train on in this step; batch: of this one, whose first item has them."""
        return int(batch[0].numel()) * self.processes

    @property
    def rows_of_order(self) -> int:
        """Return how many indices of `order` a training batch takes."""
        return 1

    def windows_in(self, batch_index: int) -> int:
        """Return how many windows, or examples, a batch of this process has: in an epoch's last one fewer."""
        return min(self.rows_of_order, len(self.order) - batch_index * self.rows_of_order)

    @property
    def description(self) -> str:
        """Describe the data in one line."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """Return what summary.json says of the data, by its names there."""
        return {
            "data": self.name,
            "data_sha256": self.sha256,
            "vocabulary": self.vocabulary.name,
            "vocabulary_size": self.vocabulary.size,
            "training_length": self.training_length,
            "measures": self.measures,
        }

    def loss(self, model: GPT, batch: Any) -> Tensor:
        """Return the mean loss of a training batch, in nats."""
        raise NotImplementedError

    def validation_sums(self, model: GPT, batch: Any) -> Tensor:
        """Return sums over a validation batch, (K,) float64: first of losses in nats, then how many they are."""
        raise NotImplementedError

    def validation_figures(self, sums: Tensor) -> dict[str, float]:
        """Return the loss and `figures` by name, of the sums over all batches of a validation."""
        return {LOSS: float(sums[0] / sums[1])}

    def monitored(self, figures: Mapping[str, float]) -> float:
        """Return the figure that `monitor` names, lower is better; 0 for the loss, which breaks ties."""
        named = (metric for metric in self.figures if metric.name == self.config.settings.monitor)
        return sum((metric.sign * figures[metric.name] for metric in named), 0.0)

    def callbacks(self) -> list[Callback]:
        """Return what these data have a run log or do besides."""
        return []

    def texts(self) -> Tensor:
        """Return texts (B, T) of the validation, on which the model is probed."""
        raise NotImplementedError

    def sample(self, model: GPT) -> tuple[str, str]:
        """Return a sample of the model's output, for the screen, and for TensorBoard, which reads it as Markdown."""
        raise NotImplementedError

    def test(self, folder: Path) -> dict[str, Any]:
        """Test the best weights of the run in the folder, write there what TensorBoard shows of that, and return what
        summary.json says of it."""
        raise NotImplementedError

    def count_batches(self, world_size: int) -> tuple[int, int]:
        """Return how many batches of training an epoch has, and of a validation, in each of so many processes."""
        self.order.share(0, world_size)
        return len(self.train_dataloader()), -(-len(self.val_dataloader()) // world_size)

    def shared_order(self) -> SeekableSampler:
        """Return the order of training, of which this process takes its share."""
        if self.trainer is not None:  # else as many as it was told
            self.order.share(self.trainer.global_rank, self.trainer.world_size)
        return self.order

    def own(self, batches: Sequence[Any]) -> Sequence[Any]:
        """Return this process's share of the batches of a validation, of which each is judged once."""
        if self.trainer is None:
            return batches
        share = batches[self.trainer.global_rank :: self.trainer.world_size]
        self.judges_none = not share
        return share or batches[:1]  # without any, Lightning would leave out the validation in this process alone

    def state_dict(self) -> dict[str, int]:
        """Return the place in the data, between two batches or after an epoch's last one."""
        assert self.trainer is not None
        epoch, done = self.trainer.current_epoch, cast(Any, self.trainer.fit_loop.epoch_loop.batch_progress)
        return {"epoch": epoch + 1} if done.is_last_batch else {"epoch": epoch, "batches": done.current.processed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.order.go_to(state_dict["epoch"], state_dict.get("batches", 0) * self.rows_of_order)


def loader_generator() -> torch.Generator:
    """Return a generator for a DataLoader, which would draw from the one that dropout draws from."""
    return torch.Generator()


def make_data(config: TrainConfig) -> DataModule:
    """Make the data module that the settings of the data name."""
    module, _, name = config.data_module.rpartition(".")
    data: DataModule = getattr(import_module(module), name)(config)
    return data
