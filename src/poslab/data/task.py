"""Lightning data module of a task: fresh examples at every step, the same ones in every validation."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from poslab.data.batch_shards import BatchShard, BatchShards
from poslab.data.module import DataModule
from poslab.data.tokenizer import Symbols
from poslab.data.windows import Steps
from poslab.tasks import Examples, Task
from poslab.tasks.checks import check_task


class TaskDataModule(DataModule):
    """Batches of one length, each a function of the seed and its step; an epoch are the steps between validations."""

    def __init__(self, task: Task, sha256: str, seed: int) -> None:
        """Check the task; raises SettingError for a task whose methods give what they shouldn't."""
        super().__init__()
        check_task(task)
        self.task = task
        self.seed = seed
        self.name, self.sha256 = task.name, sha256
        self.vocabulary = Symbols(task.symbols)
        self.training_length = task.lengths[-1]
        self.order = Steps(task.validate_every)

    @property
    def description(self) -> str:
        tests = ", ".join(map(str, self.task.test_lengths))
        return f"{self.name}, lengths {self.task.lengths[0]} to {self.task.lengths[-1]}, tested at {tests}"

    def resume_at(self, epoch: int, batches: int) -> None:
        self.order.resume_at(epoch, batches)

    def train_dataloader(self) -> DataLoader[Examples] | DataLoader[BatchShard]:
        rank, world_size = self.rank_and_world_size
        batches = _TrainingBatches(self.task, self.seed)
        shared: Any = batches if world_size == 1 else BatchShards(batches, rank, world_size, of_batches=True)
        return DataLoader(shared, batch_size=None, sampler=self.order, generator=torch.Generator())

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Examples]]:
        """Return the batches of a validation, each with the numbers of its examples (B,)."""
        numbered = ((torch.arange(len(some.tokens)), some) for some in self.task.validation())
        batches: Any = [(rows + number * len(rows), some) for number, (rows, some) in enumerate(numbered)]
        return DataLoader(batches, batch_size=None, sampler=self.shard_indices(len(batches)))


class _TrainingBatches(Dataset[Examples]):
    """Data set of the batches of all steps."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self.seed = seed

    def __getitem__(self, step: int) -> Examples:
        return self.task.training(self.seed, step)
