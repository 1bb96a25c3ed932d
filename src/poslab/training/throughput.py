"""How fast training is."""

import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Counts the tokens trained on and the seconds it took, without validation.

    every: batches between two readings of the clock; a GPU, which computes while Python is ahead, is waited for at
        readings only.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.tokens = 0
        self.seconds = 0.0
        self._recent = 0.0  # tokens/s between the last two readings
        self._batches = 0
        self._unread_tokens = 0
        self._started: float | None = None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._started is None:
            self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._unread_tokens += batch[0].numel() * trainer.world_size
        self._batches += 1
        if self._batches % self.every == 0:
            self._read(pl_module)
        pl_module.log("train/tokens_per_s", self._recent)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(pl_module)

    def state_dict(self) -> dict[str, Any]:
        unread = time.perf_counter() - self._started if self._started is not None else 0.0
        tokens, seconds = self.tokens + self._unread_tokens, self.seconds + unread
        return {"tokens": tokens, "seconds": seconds, "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens, self.seconds, self._batches = (state_dict[key] for key in ("tokens", "seconds", "batches"))

    def _read(self, pl_module: LightningModule) -> None:
        if self._started is None:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        seconds = time.perf_counter() - self._started
        self._recent = self._unread_tokens / seconds
        self.tokens += self._unread_tokens
        self.seconds += seconds
        self._unread_tokens, self._started = 0, None
