"""How fast training is."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from poslab.training.module import state_of


class Throughput(Callback):
    """Counts the tokens trained on and the seconds it took, without validation.

    every: batches between two readings of the clock; a GPU, which computes while Python is ahead, is waited for at
        readings only.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._last_reading = (0, 0.0)  # tokens and seconds
        self._recent = 0.0  # tokens/s between the last two readings

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        state = state_of(pl_module)
        self._last_reading = (state.tokens, state.training_clock.seconds)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        state_of(pl_module).training_clock.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        state_of(pl_module).tokens += batch[0].numel() * trainer.world_size
        if (batch_idx + 1) % self.every == 0:
            self._read(pl_module)
        pl_module.log("train/tokens_per_s", self._recent)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(pl_module)

    def _read(self, pl_module: LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        state = state_of(pl_module)
        state.training_clock.stop()
        reading = (state.tokens, state.training_clock.seconds)
        tokens, seconds = (now - before for now, before in zip(reading, self._last_reading, strict=True))
        if tokens and seconds:
            self._recent, self._last_reading = tokens / seconds, reading
