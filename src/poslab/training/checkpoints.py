"""When a run saves itself, and what it takes to go on from there as if nothing had happened."""

import time
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import TensorBoardLogger

from poslab.data.module import TextDataModule
from poslab.interruption import Interrupted, StopRequest
from poslab.runs.folder import RunFolder
from poslab.runs.progress import event_sizes, random_states, restore_random_states
from poslab.training.device import of_all_devices
from poslab.training.module import LanguageModel

# Where Lightning keeps what its loops have counted, in a checkpoint.
_BATCHES, _VALIDATION = "epoch_loop.batch_progress", "epoch_loop.val_loop.batch_progress"


class Checkpoints(Checkpoint):
    """Saves the best weights at validations; and everything every `every` steps, after validations, at the ends of
    epochs, and when `stop` asks for an end, which then comes at once.

    There are three places from which Lightning's loops can go on: between two batches, after a validation, and at the
    end of an epoch. Within a validation, the place before it is saved. With several devices only the ends of epochs
    are, because Lightning deals out the batches of an epoch anew.
    """

    def __init__(self, folder: RunFolder, every: int | None, stop: StopRequest) -> None:
        self.folder = folder
        self.every = every
        self.stop = stop
        self.saved_step = 0
        self._place = ""
        self._random: dict[str, Any] = {}  # after the last training batch
        self._resumed: dict[str, Any] = {}
        self._started = 0.0

    @property
    def seconds(self) -> float:
        """How long the run has taken, interruptions left out."""
        earlier: float = self._resumed.get("seconds", 0.0)
        return earlier + (time.perf_counter() - self._started if self._started else 0.0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.perf_counter()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.listen()  # Lightning has just begun to, and would end the run without saving it
        if not self._resumed:
            return
        restore_random_states(self._resumed["random"][trainer.global_rank % len(self._resumed["random"])])
        stopped = [early.wait_count >= early.patience for early in trainer.early_stopping_callbacks]
        trainer.should_stop |= any(stopped)
        _follow_the_schedule(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step == self.saved_step or trainer.world_size > 1:
            return
        if self.stop.number is not None or (self.every and step % self.every == 0):
            self._save_last(trainer, "between batches")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._random = random_states()

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self.stop.number is not None and trainer.world_size == 1:
            self._save_last(trainer, "before validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)
        if pl_module.best_step == trainer.global_step:
            trainer.save_checkpoint(self.folder.best, weights_only=True)
        if trainer.world_size == 1 or trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._random = random_states()
            self._save_last(trainer, "after validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.saved_step != trainer.global_step:
            self._save_last(trainer, "end of epoch")

    def _save_last(self, trainer: Trainer, place: str) -> None:
        self._place = place
        self.saved_step = trainer.global_step
        if isinstance(trainer.logger, TensorBoardLogger) and trainer.is_global_zero:
            trainer.logger.experiment.flush()
        trainer.save_checkpoint(self.folder.last)
        if self.stop.number is not None:
            raise Interrupted(self.stop.number, f"interrupted after step {trainer.global_step}, which is saved")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        loops = trainer.fit_loop
        checkpoint["progress"] = {
            "step": trainer.global_step,
            "epoch": trainer.current_epoch + (self._place == "end of epoch"),
            "batches": 0 if self._place == "end of epoch" else loops.epoch_loop.batch_progress.current.completed,
            "seconds": self.seconds,
            "threads": torch.get_num_threads(),
            "random": of_all_devices(self._random or random_states()),
            "events": event_sizes(self.folder),
        }
        saved = checkpoint["loops"]["fit_loop"]
        if self._place == "between batches":  # Lightning has counted the next batch as ready
            completed = {part: saved[_BATCHES][part]["completed"] for part in ("total", "current")}
            saved[_BATCHES] = {part: dict.fromkeys(_COUNTS, n) for part, n in completed.items()}
            saved[_BATCHES]["is_last_batch"] = False
        if self._place == "before validation":  # as after its first batch was begun, and no more
            begun = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
            saved[_VALIDATION] = {"total": begun, "current": begun, "is_last_batch": False}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._resumed = checkpoint["progress"]
        self.saved_step = self._resumed["step"]
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, TextDataModule)
        data.order.go_on(self._resumed["epoch"], self._resumed["batches"] * data.config.batch_size)


_COUNTS = ("ready", "started", "processed", "completed")


def _follow_the_schedule(trainer: Trainer) -> None:
    """The learning rate that the schedule has for the next step; another one than was saved if the run is extended."""
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        for group, base, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(scheduler.last_epoch)
