"""Where a run saves itself, how its files are written, and what it is given back that Lightning doesn't save.

Lightning 2.6 resumes to the bit from a checkpoint of `on_train_batch_end`, except that it takes a validation after this
batch for done, and from one of `on_validation_end` and `on_train_epoch_end`. So a batch that a validation or the end of
an epoch follows is saved there.

On a CPU one process so ends with the bits of an uninterrupted run: the order of the data is a function of seed, epoch
and count (data/windows.py), sums are over as many threads (`RunState.threads`), and random numbers go on from those
saved. These come last, in `on_train_start`, because making the model and its parts has drawn some.
"""

import hashlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from safetensors import SafetensorError

from poslab.config.files import appearing_whole
from poslab.errors import RunStopped, first_line
from poslab.runs.checkpoint_files import SAFETENSORS, save_weights
from poslab.runs.folder import RunFolder
from poslab.signals import Interrupted, StopRequest
from poslab.training.length import has_stopped
from poslab.training.module import language_model_of
from poslab.training.state import note_logs


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
            start = "resumes from the checkpoint" if run.has_checkpoint else "starts over, as no checkpoint is"
            # torch and safetensors have errors of their own for a full disk.
            reason = getattr(error, "strerror", None) or f"{first_line(error)} (the disk may be full)"
            raise RunStopped(f"{path}: can't be written: {reason}; resume={run} {start} before it") from error


class BestWeights(Checkpoint):
    """Callback that saves the best weights at validations, by what `monitor` names and then by the loss."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if language_model_of(pl_module).state.best_step == trainer.global_step:
            # Whole, because what averages weights for a validation puts them into a whole checkpoint.
            trainer.save_checkpoint(self.folder.best)


class ResumePoints(Checkpoint):
    """Callback that saves everything every `every` steps, after validations, at the ends of epochs, and when `stop`
    asks for an end, which then comes at once. Gradients that are accumulated aren't saved, so it waits for their step.
    """

    def __init__(self, folder: RunFolder, every: int | None, asks_every: int, stop: StopRequest) -> None:
        """asks_every: steps after which several processes ask each other for signals."""
        self.folder = folder
        self.every, self.asks_every = every, asks_every
        self.stop = stop
        self.saved = 0  # at which step; others may save checkpoints, too

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        language_model_of(pl_module).state.clock.start()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = language_model_of(pl_module)
        self.saved = module.state.step
        if module.state.random:
            restore_random_states(module.state.random)
        if trainer.global_rank:  # each process drops out other activations
            named = f"{module.config.settings.seed} {trainer.global_step} {trainer.global_rank}"
            torch.manual_seed(int.from_bytes(hashlib.sha256(named.encode()).digest()[:4]))
        # The rest changes nothing but in a run that resumes.
        trainer.should_stop |= any(map(has_stopped, map(vars, trainer.early_stopping_callbacks)))
        _follow_the_schedule(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_index: int
    ) -> None:
        step, loop = trainer.global_step, trainer.fit_loop.epoch_loop
        if loop.batch_progress.is_last_batch or not _between_steps(trainer):
            return
        due = self.every is not None and step % self.every == 0 and step != self.saved
        if (due or self._asked_to_stop(trainer)) and not _validation_follows(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if _between_steps(trainer):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A run that ends within an accumulation resumes from the step before, or its epoch would count as finished.
        if self.saved != trainer.global_step and (_between_steps(trainer) or not self.folder.has_checkpoint):
            self._save(trainer)

    def _asked_to_stop(self, trainer: Trainer) -> bool:
        """Return whether a signal asks any process to end. All must call this at the same step."""
        if trainer.world_size > 1 and trainer.global_step % self.asks_every:
            return False
        return bool(trainer.strategy.reduce_boolean_decision(self.stop.number is not None, all=False))

    def _save(self, trainer: Trainer) -> None:
        for logger in trainer.loggers:
            logger.save()  # or a kill would lose what it still holds
        trainer.save_checkpoint(self.folder.last)
        self.saved = trainer.global_step
        if self._asked_to_stop(trainer):
            raise Interrupted(self.stop.number or 15, f"interrupted after step {trainer.global_step}, which is saved")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        state = language_model_of(pl_module).state  # which the module saves after this
        state.step = trainer.global_step
        state.epochs = trainer.current_epoch + trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        state.processes = trainer.world_size
        state.threads = torch.get_num_threads()
        state.random = random_states()
        note_logs(self.folder, state)


def _between_steps(trainer: Trainer) -> bool:
    """Return whether no gradients are kept for a step with later batches."""
    done: Any = trainer.fit_loop.epoch_loop.batch_progress
    return bool(done.is_last_batch or done.current.processed % trainer.accumulate_grad_batches == 0)


def _validation_follows(trainer: Trainer) -> bool:
    """Return whether Lightning validates after this batch."""
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return trainer.enable_validation and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


def _follow_the_schedule(trainer: Trainer) -> None:
    """Set the learning rate that the schedule has for the next step; another one than was saved if the run is
    extended."""
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        for group, base, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(scheduler.last_epoch)


def random_states() -> dict[str, Any]:
    """Return the state of every generator that a model or a scheme may draw from, in plain containers."""
    name, keys, *rest = tuple(np.random.get_state(legacy=True))
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": [name, torch.as_tensor(np.asarray(keys, dtype=np.int64)), *rest],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the generators to what `random_states` returned; GPUs that are not there any more are left out."""
    torch.set_rng_state(states["torch"].cpu())
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state.cpu(), device)
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
