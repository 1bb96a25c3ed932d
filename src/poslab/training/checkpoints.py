"""Checkpoints: when a run saves itself, and everything that it needs to resume as if nothing had happened."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from safetensors import SafetensorError

from poslab.config.files import appearing_whole
from poslab.data.batch_shards import shard_rows
from poslab.distributed import largest, of_all_processes
from poslab.errors import RunStopped, first_line
from poslab.model.memory import Memory
from poslab.runs.checkpoint_files import SAFETENSORS, save_weights
from poslab.runs.folder import RunFolder
from poslab.signals import Interrupted, StopRequest
from poslab.training import lightning_loops
from poslab.training.loggers import writer_of
from poslab.training.module import LanguageModel, language_model_of
from poslab.training.state import random_states, restore_random_states


class CheckpointFiles(TorchCheckpointIO):
    """Writer of checkpoint files for Lightning, which reads them as it would its own."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the file. Raises RunStopped where it can't be written; what was there before is as it was."""
        path = Path(path)
        run = RunFolder(path.parent.parent)
        try:
            if path.suffix == SAFETENSORS:
                save_weights(path, checkpoint["state_dict"], checkpoint["poslab"])
            else:
                with appearing_whole(path, durable=True, previous=run.previous) as file, file.open("wb") as opened:
                    torch.save(checkpoint, opened)
        except (OSError, RuntimeError, SafetensorError) as error:
            start = "resumes from the checkpoint" if run.resumable else "starts over, as no checkpoint is"
            # torch and safetensors have errors of their own for a full disk.
            reason = getattr(error, "strerror", None) or f"{first_line(error)} (the disk may be full)"
            raise RunStopped(f"{path}: can't be written: {reason}; resume={run} {start} before it") from error


class Checkpoints(Checkpoint):
    """Callback that saves the best weights at validations; and everything every `every` steps, after validations, at
    the ends of epochs, and when `stop` asks for an end, which then comes at once.

    Lightning's loops can resume at three points: between two batches, after a validation, and at the end of an epoch.
    Within a validation, the point before it is saved; while gradients are accumulated, none. Several processes agree at
    these points whether one of them is to end.
    """

    def __init__(self, folder: RunFolder, every: int | None, stop: StopRequest) -> None:
        self.folder = folder
        self.every = every
        self.stop = stop
        self._point = ""  # at which the checkpoint is taken
        self._first = random_states()
        self._random: dict[str, Any] = {}  # after the last training batch

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        language_model_of(pl_module).state.clock.start()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore_random_states(trainer, language_model_of(pl_module))
        # The rest changes nothing but in a run that resumes.
        trainer.should_stop |= any(early.wait_count >= early.patience for early in trainer.early_stopping_callbacks)
        lightning_loops.follow_the_schedule(trainer)

    def _restore_random_states(self, trainer: Trainer, module: LanguageModel) -> None:
        """Give each process its own random numbers, for dropout; without dropout they all draw the same positions, as
        one alone would for the whole batch."""
        states, rank = module.state.random, trainer.global_rank
        as_before = len(states) == trainer.world_size
        if states:
            restore_random_states(states[rank if as_before else 0])
        elif trainer.world_size > 1:
            restore_random_states(self._first)  # Lightning has set the seed anew
        if rank and not as_before and module.config.model.dropout:
            digest = hashlib.sha256(f"{module.config.settings.seed} {trainer.global_step} {rank}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:4]))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        stopping, step = self._stop_signal(trainer), trainer.global_step
        if step == language_model_of(pl_module).state.step:
            return
        if stopping or (self.every and step % self.every == 0):
            self._save_last(trainer, "between batches")

    def on_train_batch_end(self, *_: Any) -> None:
        self._random = random_states()

    def _stop_signal(self, trainer: Trainer) -> int:
        """Return the number of the signal that any process has received, else 0. All must call this at once."""
        return largest(self.stop.number or 0, trainer.strategy.root_device)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._stop_signal(trainer):
            self._save_last(trainer, "before validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if language_model_of(pl_module).state.best_step == trainer.global_step:
            trainer.save_checkpoint(self.folder.best, weights_only=True)
        self._random = random_states()
        self._save_last(trainer, "after validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if language_model_of(pl_module).state.step != trainer.global_step:
            self._save_last(trainer, "end of epoch")

    def _save_last(self, trainer: Trainer, point: str) -> None:
        if not lightning_loops.is_between_steps(trainer):
            return  # and end, if asked to, before the next batch at which this holds
        self._point = point
        if writer := writer_of(trainer):
            writer.flush()
        trainer.save_checkpoint(self.folder.last)
        if number := self._stop_signal(trainer):
            raise Interrupted(number, f"interrupted after step {trainer.global_step}, which is saved")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        module = language_model_of(pl_module)
        state = module.state  # which the module saves after this
        epoch_is_over = self._point == "end of epoch"
        state.step = trainer.global_step
        state.epoch = trainer.current_epoch + epoch_is_over
        state.batches = 0 if epoch_is_over else lightning_loops.batches_of_this_epoch(trainer)
        state.threads = torch.get_num_threads()
        state.random = of_all_processes(self._random or random_states())
        state.events = {path.name: path.stat().st_size for path in self.folder.events}
        if module.memory is not None:
            checkpoint["memory"] = Memory.joined(of_all_processes(module.memory.to("cpu"))).plain()
        if self._point == "between batches":
            lightning_loops.set_back_to_last_batch(checkpoint)
        if self._point == "before validation":
            lightning_loops.set_back_to_start_of_validation(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        module = language_model_of(pl_module)
        state, data = module.state, module.scoring.data
        if "memory" in checkpoint:
            memory = Memory(**checkpoint["memory"])
            own = shard_rows(len(memory.read), trainer.global_rank, trainer.world_size)
            module.memory = memory.rows(own).to(trainer.strategy.root_device)
        data.resume_at(state.epoch, state.batches)
