"""Lightning's Trainer for a run: its settings checked, its callbacks chosen."""

import logging
import os
import sys
import warnings
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping

from poslab.config.schema import TrainerConfig
from poslab.config.train import TrainConfig
from poslab.data.module import DataModule
from poslab.distributed import cluster_environment, launch
from poslab.errors import SettingError, UserError, first_line
from poslab.metric import LOSS
from poslab.runs.folder import RunFolder
from poslab.signals import StopRequest
from poslab.training import sharded
from poslab.training.checkpoints import CheckpointFiles, Checkpoints
from poslab.training.console import ProgressBar, ValidationLines
from poslab.training.lightning_loops import leave_signals_alone
from poslab.training.loggers import HyperParameters, Pictures, SampleText, make_loggers
from poslab.training.machine import bfloat16_units, missing_compiler
from poslab.training.module import IMPROVEMENTS
from poslab.training.run_ends import FiniteLoss, Limits


def make_trainer(config: TrainConfig, folder: RunFolder, every: int, stop: StopRequest, world_size: int) -> Trainer:
    """Make the Trainer that writes into `folder`, with everything that runs beside the training.

    every: steps between two figures of the training. stop: asks the run to end.
    """
    divided, on_terminal = config.trainer.strategy in sharded.NAMES, sys.stdout.isatty()
    callbacks = _callbacks(config, folder, every, stop)
    if on_terminal:
        callbacks.insert(0, ProgressBar(refresh_rate=every))  # ahead of those that print, which it lets through
    own: dict[str, Any] = {"log_every_n_steps": every, "max_steps": -1, "max_epochs": config.trainer.max_epochs or -1}
    if config.trainer.limit_val_batches != 0:
        own["limit_val_batches"] = 1.0  # of what the data deal out, which `limit_batches` has limited
    given = asdict(config.trainer) | _launched(config.trainer) | own
    if divided:
        given["strategy"] = sharded.strategy(world_size)
    elif world_size > 1 and config.trainer.strategy in ("auto", "ddp"):
        # Or DDP would put gradients together in other groups from the second step on, and more than two processes sum
        # each in an order that depends on its group: a run that resumes would end with other bits.
        given["strategy"] = "ddp_find_unused_parameters_true"
    trainer = Trainer(
        **given,
        logger=make_loggers(config.logger, folder),
        callbacks=callbacks,
        plugins=[CheckpointFiles(), *cluster_environment()],
        use_distributed_sampler=False,  # the data know how to share them
        enable_progress_bar=on_terminal,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    leave_signals_alone(trainer)
    return trainer


def _callbacks(config: TrainConfig, folder: RunFolder, every: int, stop: StopRequest) -> list[Callback]:
    settings = config.settings
    callbacks: list[Callback] = [FiniteLoss(every), ValidationLines()]  # it comes before those that show or save
    if config.trainer.strategy not in sharded.NAMES:
        callbacks += [SampleText(), Pictures()]
    callbacks += [HyperParameters(), Limits(config.trainer.max_steps, settings.target_loss)]
    if settings.early_stopping_patience is not None:
        # At validations, so that what is saved after one knows of it.
        watched, mode = ("val/loss", "min") if settings.monitor == LOSS else (IMPROVEMENTS, "max")
        patience = settings.early_stopping_patience
        callbacks.append(EarlyStopping(watched, mode=mode, patience=patience, check_on_train_epoch_end=False))
    return [*callbacks, Checkpoints(folder, settings.checkpoint_every_n_steps, stop)]


def _launched(settings: TrainerConfig) -> dict[str, Any]:
    """Return the devices and nodes that torchrun or srun has started processes for, else those of the settings.

    Raises SettingError where the settings name others.
    """
    here = launch()
    if not here.launcher:
        return {"devices": settings.devices, "num_nodes": settings.num_nodes}
    if str(settings.devices) not in ("auto", "-1", str(here.local_size)):
        problem = f"{here.launcher} has started {here.local_size} on each machine, and decides"
        raise SettingError("trainer.devices", settings.devices, problem)
    if settings.num_nodes not in (1, here.nodes):
        problem = f"{here.launcher} has started processes on {here.nodes}, and decides"
        raise SettingError("trainer.num_nodes", settings.num_nodes, problem)
    return {"devices": here.local_size, "num_nodes": here.nodes}


def check_batch_size(batch_size: int, world_size: int) -> None:
    """Raise SettingError where the processes can't share batches evenly."""
    if batch_size % world_size:
        problem = f"is of all {world_size} processes together, so it must be a multiple of {world_size}"
        raise SettingError("data.batch_size", batch_size, problem)


def check_trainer(settings: TrainerConfig) -> int:
    """Return how many processes will train. Raises SettingError, naming the setting to blame, for what this machine or
    Lightning can't do."""
    available = torch.cuda.is_available() or torch.backends.mps.is_available()
    if settings.accelerator in ("gpu", "cuda", "mps") and not available:
        raise SettingError("trainer", settings.accelerator, "torch sees no GPU; valid here: trainer=cpu, trainer=auto")
    if settings.precision == "16-mixed" and (settings.accelerator == "cpu" or not available):
        # Lightning would take bfloat16 instead.
        problem = "needs a GPU; valid on a CPU: 32-true, bf16-mixed, bf16-true, 64-true"
        raise SettingError("trainer.precision", settings.precision, problem)
    processes, processors = str(settings.devices), os.cpu_count() or 1
    if not available and processes.isdigit() and int(processes) > processors:  # Lightning would start them all
        raise SettingError("trainer.devices", processes, f"must be at most {processors}, the processors here")
    if settings.strategy in sharded.NAMES:  # whose mesh needs the number of processes
        settings = replace(settings, strategy="ddp")
    given, launched = asdict(settings), _launched(settings)
    changed = {f.name: given[f.name] for f in fields(settings) if given[f.name] != f.default}
    try:
        return _try(" ".join(f"trainer.{name}={value}" for name, value in changed.items()), given | launched)
    except UserError:
        for name, value in sorted(changed.items(), key=lambda setting: setting[0] not in launched):  # which all need
            alone = {"accelerator": settings.accelerator, "max_steps": 1, name: value} | launched
            _try(f"trainer.{name}={value}", alone)
        raise


def _try(typed: str, settings: dict[str, Any]) -> int:
    """Return the number of processes of a Trainer with these settings. Raises UserError where there can be none."""
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    try:
        return int(Trainer(**settings, **quiet, plugins=[*cluster_environment()]).world_size)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(f"{typed}: {first_line(error)}") from error


def limit_batches(settings: TrainerConfig, data: DataModule) -> int:
    """Limit the validation batches of `data`, and return how many batches an epoch of training has.

    Raises SettingError for limits that leave none, or no validation within an epoch.
    """
    of_training, of_validation = len(data.train_dataloader()), data.count_validation_batches()
    for side, batches in (("train", of_training), ("val", of_validation)):
        limit = getattr(settings, f"limit_{side}_batches")
        if limit != 0 and _limited(batches, limit) == 0:
            raise SettingError(f"trainer.limit_{side}_batches", limit, f"leaves none of {batches} batches")
    of_training = _limited(of_training, settings.limit_train_batches)
    every = settings.val_check_interval
    if isinstance(every, int) and every > of_training and settings.check_val_every_n_epoch is not None:
        problem = f"an epoch has {of_training} batches; to count across epochs, trainer.check_val_every_n_epoch=null"
        raise SettingError("trainer.val_check_interval", every, problem)
    data.validation_batches = _limited(of_validation, settings.limit_val_batches)
    return of_training


def _limited(batches: int, limit: float | None) -> int:
    """Return how many batches Lightning takes: all, a number of them, or a share."""
    if limit is None:
        return batches
    return int(batches * limit) if isinstance(limit, float) else min(batches, limit)


def run_warnings(config: TrainConfig, trainer: Trainer) -> list[str]:
    """Collect what a user should know before the training."""
    reach = config.model.context_length + config.model.memory_length
    notes = config.pos.warnings(replace(config.model.shape, context_length=reach))
    precision, on_cpu = config.trainer.precision, trainer.strategy.root_device.type == "cpu"
    if on_cpu and precision in ("bf16-mixed", "bf16-true") and not bfloat16_units():  # works, but only in software
        notes.append(f"trainer.precision={precision}: this CPU has no bfloat16 arithmetic; 32-true is faster")
    return notes + missing_compiler(config.model, config.trainer)


def quieten() -> None:
    """Leave out warnings that the user can't act on, by name; everything else comes through."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices found, tips, "max_epochs reached"
    # In-process loading is the fastest here, a window is one slice; data.num_workers is there for who wants more.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The order of batches is a function of the seed and the epoch; the samplers resume within it.
    warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
    # Lightning's own use of a torch function.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
