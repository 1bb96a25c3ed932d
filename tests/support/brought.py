"""Parts of a training as a user brings them along."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer


class Doubled(torch.optim.SGD):
    def __init__(self, params: Any, lr: float, power: float = 1.0) -> None:
        super().__init__(params, lr=2 * lr**power)


class Halved:
    def __init__(self, by: float = 2.0, how: "in prose" = None) -> None:  # type: ignore # noqa: F722
        self.by = by

    def __call__(self, step: int, total_steps: int) -> float:
        return 1 / self.by


def quartered(step: int, total_steps: int, further: float = 1.0) -> float:
    return 0.25 / further


def wordy(step: int, total_steps: int) -> str:
    return "half"


class Noise(Callback):
    """Adds noise to the weights after every so many steps, and logs how often it did."""

    def __init__(self, every: int = 1, size: float = 0.01) -> None:
        self.every, self.size = every, size
        self.batches = self.added = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert trainer.datamodule is pl_module.data
        self.batches += 1
        if self.batches % self.every == 0:
            self.added += 1
            with torch.no_grad():
                for parameter in pl_module.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=self.size)
        for logger in trainer.loggers:  # now, as Lightning's `log` writes after the checkpoint of this step
            logger.log_metrics({"train/noises": float(self.added)}, trainer.global_step - 1)

    def state_dict(self) -> dict[str, int]:
        return {"batches": self.batches, "added": self.added}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.batches, self.added = state_dict["batches"], state_dict["added"]


class Losses(Callback):
    """Logs the loss of each batch, as a callback has it."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        for logger in trainer.loggers:
            logger.log_metrics({"train/mine": float(outputs["loss"])}, trainer.global_step - 1)
