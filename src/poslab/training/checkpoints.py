"""Checkpoints: when a run saves itself, and everything that it needs to resume as if nothing had happened; and the ends
of a run: after its steps, at the loss that it is to reach, and where a loss or gradient is not finite."""

import hashlib
import math
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from safetensors import SafetensorError
from torch import Tensor

from poslab.config.files import appearing_whole
from poslab.data.batch_shards import shard_rows
from poslab.distributed import largest, of_all_processes
from poslab.errors import Diverged, RunStopped
from poslab.model.memory import Memory
from poslab.runs.checkpoint_files import SAFETENSORS, save_weights
from poslab.runs.folder import RunFolder
from poslab.signals import Interrupted, StopRequest
from poslab.training import lightning_loops
from poslab.training.loggers import writer_of
from poslab.training.module import LanguageModel, ours
from poslab.training.state import RunState, event_sizes, random_states, restore_random_states


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
            reason = getattr(error, "strerror", None) or f"{str(error).splitlines()[0]} (the disk may be full)"
            raise RunStopped(f"{path}: can't be written: {reason}; resume={run} {start} before it") from error


class Checkpoints(Checkpoint):
    """Callback that saves the best weights at validations; and everything every `every` steps, after validations, at
    the ends of epochs, and when `stop` asks for an end, which then comes at once.

    Lightning's loops can resume at three points: between two batches, after a validation, and at the end of an epoch.
    Within a validation, the point before it is saved. Several processes agree at these points whether one of them is
    to end.
    """

    def __init__(self, folder: RunFolder, every: int | None, stop: StopRequest) -> None:
        self.folder = folder
        self.every = every
        self.stop = stop
        self.saved_step = 0
        self._point = ""  # at which the checkpoint is taken
        self._first = random_states()
        self._random: dict[str, Any] = {}  # after the last training batch
        self._resumed = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ours(pl_module).state.clock.start()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore_random_states(trainer, ours(pl_module))
        if not self._resumed:
            return
        trainer.should_stop |= lightning_loops.has_stopped_early(trainer)
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

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        stopping, step = self._stop_signal(trainer), trainer.global_step
        if step == self.saved_step:
            return
        if stopping or (self.every and step % self.every == 0):
            self._save_last(trainer, "between batches")

    def on_train_batch_end(self, *_: Any) -> None:
        self._random = random_states()

    def _stop_signal(self, trainer: Trainer) -> int:
        """Return the number of the signal that any process has received, else 0. All must call this at once."""
        own = self.stop.number or 0
        return own if trainer.world_size == 1 else largest(own, trainer.strategy.root_device)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._stop_signal(trainer):
            self._save_last(trainer, "before validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if ours(pl_module).state.best_step == trainer.global_step:
            trainer.save_checkpoint(self.folder.best, weights_only=True)
        self._random = random_states()
        self._save_last(trainer, "after validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.saved_step != trainer.global_step:
            self._save_last(trainer, "end of epoch")

    def _save_last(self, trainer: Trainer, point: str) -> None:
        self._point = point
        self.saved_step = trainer.global_step
        if writer := writer_of(trainer):
            writer.flush()
        trainer.save_checkpoint(self.folder.last)
        if number := self._stop_signal(trainer):
            raise Interrupted(number, f"interrupted after step {trainer.global_step}, which is saved")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        module = ours(pl_module)
        state = module.state  # which the module saves after this
        epoch_is_over = self._point == "end of epoch"
        state.step = trainer.global_step
        state.epoch = trainer.current_epoch + epoch_is_over
        state.batches = 0 if epoch_is_over else lightning_loops.batches_of_this_epoch(trainer)
        state.threads = torch.get_num_threads()
        state.random = of_all_processes(self._random or random_states())
        state.events = event_sizes(self.folder)
        if module.memory is not None:
            checkpoint["memory"] = Memory.joined(of_all_processes(module.memory.to("cpu"))).plain()
        if self._point == "between batches":
            lightning_loops.set_back_to_last_batch(checkpoint)
        if self._point == "before validation":
            lightning_loops.set_back_to_start_of_validation(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        module = ours(pl_module)
        state, data = module.state, module.scoring.data
        if "memory" in checkpoint:
            memory = Memory(**checkpoint["memory"])
            own = shard_rows(len(memory.read), trainer.global_rank, trainer.world_size)
            module.memory = memory.rows(own).to(trainer.strategy.root_device)
        self._resumed, self.saved_step = True, state.step
        data.resume_at(state.epoch, state.batches)


# Ends of a run


class Limits(Callback):
    """Callback that ends the training after `steps` optimiser steps, validated, or once there was one and a batch's
    loss is below `target`, in nats.

    steps: -1 for any number. (Lightning's own max_steps skips that validation, and its loops resume from a checkpoint
    in another way where it is set.)
    """

    def __init__(self, steps: int, target: float | None) -> None:
        self.steps = steps
        self.target = target

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop |= 0 <= self.steps <= trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        if self.target is not None:
            module = ours(pl_module)
            assert module.loss is not None
            module.state.batch_loss = float(module.loss)
            trainer.should_stop |= trainer.global_step > 0 and module.state.batch_loss < self.target
        self.on_train_start(trainer, pl_module)


class FiniteLoss(Callback):
    """Callback that stops a run whose loss or gradient is infinite or no number, before that is saved.

    every: steps between two looks at a GPU's losses, each of which waits for it; on a CPU every step is looked at.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._unseen: list[tuple[int, Tensor]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        module = ours(pl_module)
        assert module.loss is not None
        values = [module.loss.float().flatten()]
        # With 16-bit floats Lightning scales the loss, and leaves out steps whose gradient that makes infinite.
        if module.gradient_norm is not None and getattr(trainer.precision_plugin, "scaler", None) is None:
            values.append(module.gradient_norm.detach().float().flatten())
        self._unseen.append((trainer.global_step, torch.cat(values)))
        if pl_module.device.type == "cpu" or trainer.global_step % self.every == 0:
            self._look(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loss = ours(pl_module).state.last_val_loss
        if not math.isfinite(loss):
            raise _stopped(trainer, pl_module, trainer.global_step, f"validation loss is {loss}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._look(trainer, pl_module)

    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        unseen, self._unseen = self._unseen, []
        for step, values in unseen:
            for name, value in zip(("loss", "gradient's norm"), values.tolist(), strict=False):
                if not math.isfinite(value):
                    raise _stopped(trainer, pl_module, step, f"{name} is {value}")


def check_target(target: float | None, state: RunState) -> None:
    """Raise RunStopped where the training was to reach a loss, and didn't."""
    if target is not None and not state.batch_loss < target:
        problem = f"not reached in {state.step} steps; the last batch's loss was {state.batch_loss:.4f}"
        raise RunStopped(f"target_loss={target:g}: {problem}")


def _stopped(trainer: Trainer, pl_module: LightningModule, step: int, what: str) -> Diverged:
    config, callback = ours(pl_module).config, trainer.checkpoint_callback
    saved = getattr(callback, "saved_step", 0)
    kept = f"the last good checkpoint is of step {saved}" if saved else "there is no checkpoint yet"
    advice = [f"a smaller optim.learning_rate than {config.optim.learning_rate:g}"]
    advice += ["trainer.gradient_clip_val=1.0"] if not config.trainer.gradient_clip_val else []
    advice += ["trainer.precision=32-true"] if not config.trainer.precision.startswith(("32", "64")) else []
    tips = f"Try, in a new run, {', or '.join(advice)}; debug=overfit shows whether it can learn"
    return Diverged(f"step {step}: the {what}; {kept}. {tips}")
