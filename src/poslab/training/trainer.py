"""Lightning's Trainer for a run: its settings checked, its callbacks chosen."""

import os
import sys
from dataclasses import asdict, fields
from typing import Any

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping

from poslab.errors import SettingError, UserError
from poslab.evaluation.scoring import Scoring
from poslab.interruption import StopRequest
from poslab.runs.checkpoint_files import CheckpointFiles
from poslab.runs.folder import RunFolder
from poslab.settings.schema import TrainerConfig
from poslab.settings.train import TrainConfig
from poslab.tasks.metric import LOSS
from poslab.training.checkpoints import Checkpoints
from poslab.training.console import ProgressBar, ValidationLines
from poslab.training.device import computes_bfloat16
from poslab.training.limits import FiniteLoss, Limits
from poslab.training.loggers import make_loggers
from poslab.training.module import IMPROVEMENTS
from poslab.training.tensorboard import HyperParameters, Pictures, SampleText


def make_trainer(
    config: TrainConfig, folder: RunFolder, every: int, scoring: Scoring[Any], stop: StopRequest
) -> Trainer:
    """A Trainer that writes into `folder`, with everything that runs beside the training."""
    settings = config.settings
    callbacks: list[Callback] = [
        FiniteLoss(every),  # before those that would show or save what is not finite
        ValidationLines(),
        SampleText(),
        HyperParameters(),
        Pictures(scoring),
        Limits(config.trainer.max_steps, settings.target_loss),
    ]
    on_terminal = sys.stdout.isatty()
    if on_terminal:
        callbacks.insert(0, ProgressBar(refresh_rate=every))  # ahead of those that print, which it lets through
    if settings.early_stopping_patience is not None:
        # At validations, so that what is saved after one knows of it.
        watched, mode = ("val/loss", "min") if settings.monitor == LOSS else (IMPROVEMENTS, "max")
        patience = settings.early_stopping_patience
        callbacks.append(EarlyStopping(watched, mode=mode, patience=patience, check_on_train_epoch_end=False))
    callbacks.append(Checkpoints(folder, settings.checkpoint_every_n_steps, stop))
    own = {"log_every_n_steps": every, "max_steps": -1, "max_epochs": config.trainer.max_epochs or -1}
    return Trainer(
        **asdict(config.trainer) | own,
        logger=make_loggers(config.logger, folder),
        callbacks=callbacks,
        plugins=[CheckpointFiles()],
        enable_progress_bar=on_terminal,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def check_trainer(settings: TrainerConfig) -> None:
    """Raises SettingError for what this machine or Lightning can't do, naming the one setting that is to blame."""
    available = torch.cuda.is_available() or torch.backends.mps.is_available()
    if settings.accelerator in ("gpu", "cuda", "mps") and not available:
        raise SettingError("trainer", settings.accelerator, "torch sees no GPU; valid here: trainer=cpu, trainer=auto")
    processes, processors = str(settings.devices), os.cpu_count() or 1
    if not available and processes.isdigit() and int(processes) > processors:  # Lightning would start them all
        raise SettingError("trainer.devices", processes, f"must be at most {processors}, the processors here")
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    changed = {f.name: given[f.name] for f in fields(settings) if given[f.name] != f.default}
    for name, value in changed.items():
        _try(f"trainer.{name}={value}", {"accelerator": settings.accelerator, "max_steps": 1, name: value})
    _try(" ".join(f"trainer.{name}={value}" for name, value in changed.items()), given)


def slow_precision(settings: TrainerConfig, device: torch.device) -> list[str]:
    """A warning, or none: where bfloat16 works, but only in software."""
    if device.type == "cpu" and settings.precision in ("bf16-mixed", "bf16-true") and not computes_bfloat16():
        return [f"trainer.precision={settings.precision}: this CPU has no bfloat16 arithmetic; 32-true is faster"]
    return []


def _try(typed: str, settings: dict[str, Any]) -> None:
    try:
        Trainer(**settings, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(f"{typed}: {str(error).splitlines()[0]}") from error


def check_batches(settings: TrainerConfig, train_batches: int, validation_batches: int) -> int:
    """The training batches of an epoch. Raises SettingError for limits that leave none, or no validation within it."""
    for side, batches in (("train", train_batches), ("val", validation_batches)):
        limit = getattr(settings, f"limit_{side}_batches")
        if limit != 0 and _limited(batches, limit) == 0:
            raise SettingError(f"trainer.limit_{side}_batches", limit, f"leaves none of {batches} batches")
    train_batches = _limited(train_batches, settings.limit_train_batches)
    every = settings.val_check_interval
    if isinstance(every, int) and every > train_batches and settings.check_val_every_n_epoch is not None:
        problem = f"an epoch has {train_batches} batches; to count across epochs, trainer.check_val_every_n_epoch=null"
        raise SettingError("trainer.val_check_interval", every, problem)
    return train_batches


def _limited(batches: int, limit: float | None) -> int:
    """How many batches Lightning takes: all, a number of them, or a share."""
    if limit is None:
        return batches
    return int(batches * limit) if isinstance(limit, float) else min(batches, limit)
