"""When a run saves itself, and what it takes to go on from there as if nothing had happened."""

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import TensorBoardLogger

from poslab.data.module import DataModule
from poslab.interruption import Interrupted, StopRequest
from poslab.runs.folder import RunFolder
from poslab.runs.state import event_sizes, random_states, restore_random_states
from poslab.training import lightning_loops
from poslab.training.device import of_all_devices
from poslab.training.module import state_of


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
        self._resumed = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        state_of(pl_module).clock.start()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.listen()  # Lightning has just begun to, and would end the run without saving it
        if not self._resumed:
            return
        states = state_of(pl_module).random
        restore_random_states(states[trainer.global_rank % len(states)])
        trainer.should_stop |= lightning_loops.has_stopped_early(trainer)
        lightning_loops.follow_the_schedule(trainer)

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        step = trainer.global_step
        if step == self.saved_step or trainer.world_size > 1:
            return
        if self.stop.number is not None or (self.every and step % self.every == 0):
            self._save_last(trainer, "between batches")

    def on_train_batch_end(self, *_: Any) -> None:
        self._random = random_states()

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self.stop.number is not None and trainer.world_size == 1:
            self._save_last(trainer, "before validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if state_of(pl_module).best_step == trainer.global_step:
            trainer.save_checkpoint(self.folder.best, weights_only=True)
        if trainer.world_size == 1 or lightning_loops.is_last_batch_of_epoch(trainer):
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
        state = state_of(pl_module)  # which the module saves after this
        epoch_is_over = self._place == "end of epoch"
        state.step = trainer.global_step
        state.epoch = trainer.current_epoch + epoch_is_over
        state.batches = 0 if epoch_is_over else lightning_loops.batches_of_this_epoch(trainer)
        state.threads = torch.get_num_threads()
        state.random = of_all_devices(self._random or random_states())
        state.events = event_sizes(self.folder)
        if self._place == "between batches":
            lightning_loops.set_back_to_last_batch(checkpoint)
        if self._place == "before validation":
            lightning_loops.set_back_to_start_of_validation(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        state, data = state_of(pl_module), trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, DataModule)
        self._resumed, self.saved_step = True, state.step
        data.go_on(state.epoch, state.batches)
