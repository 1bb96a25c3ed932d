"""Data that are read on from segment to segment, by a model that may remember: streams of a text, tasks in segments."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from poslab.config.train import TrainConfig
from poslab.data.stream import Scans, StreamedWindows, segments_before
from poslab.data.windows import ContiguousRows
from poslab.errors import SettingError
from poslab.evaluation.stream_losses import scanned_losses
from poslab.metric import IGNORED
from poslab.model.decoder import GPT
from poslab.model.memory import Memory, MemoryGPT, RetrievedAttention
from poslab.training.data import loader_generator
from poslab.training.data.task import TaskDataModule
from poslab.training.data.text import TextDataModule
from poslab.training.loss import mean_loss


class StreamDataModule(TextDataModule):
    """Segments of a text: each row of a batch has a stretch of it, and continues the batch before.

    Keeps the memory of a model that has one. Raises SettingError where there are more rows than windows.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        rows, windows = self.text.batch_size, len(self.train_windows)
        if rows > windows:
            source = f"the training part of {self.name}, which has {windows} times model.context_length"
            problem = f"data.order=stream gives each row a stretch of {source}: up to {windows} rows fit"
            raise SettingError("data.batch_size", rows, problem)
        self.order = ContiguousRows(windows, rows)
        self.reach = config.model.reach
        self.memory: Memory | None = None  # of this process's rows, after the last step

    def loss(self, model: GPT, batch: Any) -> Tensor:
        tokens, targets, read, *documents = batch
        if not isinstance(model, MemoryGPT):
            return super().loss(model, (tokens, targets, *documents))
        before = model.empty_memory(len(tokens)) if self.memory is None else self.memory.to(tokens.device)
        loss, self.memory = loss_in_segments(model, tokens, targets, before.restarted(read), *documents)
        return loss

    def callbacks(self) -> list[Callback]:
        return [RetrievedShares()] if self.config.model.retrieval else []

    def train_dataloader(self) -> DataLoader[Any]:
        order, windows = self.shared_order(), self.train_windows
        assert isinstance(order, ContiguousRows)
        source = StreamedWindows(windows, order.rows, self.corpus.ends.get("train"))
        return self._loader(source, order, apart=len(windows) // order.rows)

    def val_dataloader(self) -> DataLoader[Any]:
        if not self.reach:
            return super().val_dataloader()
        before, ends = segments_before(self.context_length, self.reach), self.corpus.ends.get("validation")
        limit = self.config.trainer.limit_val_batches
        wanted = limit * self.text.batch_size if isinstance(limit, int) and limit else None  # as many as without memory
        scans = Scans(self.validation_windows, self.text.batch_size, before, ends, wanted)
        own = self.own(range(len(scans)))
        return DataLoader(scans, batch_size=None, sampler=own, generator=loader_generator())

    def validation_sums(self, model: GPT, batch: Any) -> Tensor:
        if not isinstance(model, MemoryGPT):
            return super().validation_sums(model, batch)
        return torch.tensor(list(scanned_losses(model, batch).values()), dtype=torch.float64).sum(0)

    def state_dict(self) -> dict[str, Any]:
        memory = {} if self.memory is None else self.memory.to("cpu").plain()
        return super().state_dict() | {"memory": memory}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.memory = Memory(**state_dict["memory"]) if state_dict["memory"] else None


class SegmentedTask(TaskDataModule):
    """Examples of a task that are read as texts of several segments."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if self.positions is not None:
            problem = "is read in segments, whose positions are counted on; this task says where its tokens stand"
            raise SettingError("data", self.name, problem)

    def callbacks(self) -> list[Callback]:
        return [RetrievedShares()] if self.config.model.retrieval else []

    def loss(self, model: GPT, batch: Any) -> Tensor:
        assert isinstance(model, MemoryGPT)
        return loss_in_segments(model, batch.tokens, batch.targets)[0]


def loss_in_segments(
    model: MemoryGPT,
    tokens: Tensor,
    targets: Tensor,
    memory: Memory | None = None,
    documents: Tensor | None = None,
) -> tuple[Tensor, Memory]:
    """Return the mean cross-entropy of texts that are read in segments, tokens and targets (B, N), after the memory of
    those before; and the memory after them. documents: (B, N) numbers."""
    target_mask = targets != IGNORED
    if targets.device.type == "cpu" and target_mask.any() and not target_mask.all():
        hidden, memory = model.hidden_in_segments(tokens, memory, target_mask, documents)  # (n, D)
        return mean_loss(hidden, model.head_weight, targets[target_mask]), memory
    hidden, memory = model.hidden_in_segments(tokens, memory, documents=documents)
    return mean_loss(hidden.flatten(0, 1), model.head_weight, targets.flatten()), memory


class RetrievedShares(Callback):
    """Callback that logs the gate of a layer that retrieves, by head, at every validation."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for part in pl_module.modules():
            if isinstance(part, RetrievedAttention):
                for head, share in enumerate(part.shares.tolist()):
                    pl_module.log(f"val_retrieval/gate_head_{head}", share, sync_dist=True)
