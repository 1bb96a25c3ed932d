"""How fast training is."""

import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Counts the tokens trained on and the seconds of training steps, without data loading and validation."""

    def __init__(self) -> None:
        self.tokens = 0
        self.seconds = 0.0
        self._started = 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if pl_module.device.type == "cuda":  # which computes while Python is already here
            torch.cuda.synchronize(pl_module.device)
        seconds = time.perf_counter() - self._started
        tokens = batch[0].numel() * trainer.world_size
        self.seconds += seconds
        self.tokens += tokens
        pl_module.log("train/tokens_per_s", tokens / seconds)
