"""Lightning's Trainer for a run: its settings checked, its callbacks chosen."""

import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytorch_lightning.callbacks
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    EarlyStopping,
    LambdaCallback,
    LearningRateFinder,
    ModelPruning,
    ProgressBar,
    ThroughputMonitor,
)
from pytorch_lightning.strategies import StrategyRegistry

from poslab.config.checking import imported
from poslab.config.nodes import TARGET
from poslab.config.parts import Node, part, takes
from poslab.config.schema import Settings, TrainerConfig
from poslab.config.train import TrainConfig
from poslab.errors import SettingError, UserError, first_line, suggestion
from poslab.metric import LOSS
from poslab.processes import launched, launcher_plugins
from poslab.runs.folder import RunFolder
from poslab.signals import StopRequest
from poslab.training.compilation import compilation_warnings
from poslab.training.console import ProgressBar as OwnProgressBar
from poslab.training.console import ProgressLines, ValidationLines
from poslab.training.data import DataModule
from poslab.training.figures import ProbeFigures, TrainingFigures
from poslab.training.loggers import HyperParameters, Pictures, SampleText, make_loggers
from poslab.training.machine import bfloat16_units
from poslab.training.module import IMPROVEMENTS
from poslab.training.resume_points import BestWeights, CheckpointFiles, ResumePoints
from poslab.training.run_ends import FiniteLoss, Limits


def make_trainer(
    config: TrainConfig, data: DataModule, folder: RunFolder, stop: StopRequest, brought: Sequence[Callback]
) -> Trainer:
    """Make the Trainer that writes into `folder`, with everything that runs beside the training.

    stop: asks it to end. brought: callbacks of the user's.
    """
    on_terminal = sys.stdout.isatty()
    callbacks = _callbacks(config, data, folder, stop, brought)
    if on_terminal:
        # Ahead of those that print, which it lets through; to read the loss waits for a GPU.
        callbacks.insert(0, OwnProgressBar(refresh_rate=config.trainer.log_every_n_steps))
    else:
        callbacks.append(ProgressLines())
    own: dict[str, Any] = {"max_steps": -1, "max_epochs": config.trainer.max_epochs or -1}
    loggers = make_loggers(config.logger, folder)
    with refusals_in_one_line():
        trainer = Trainer(
            **asdict(config.trainer) | launched(config.trainer.devices) | own,
            logger=loggers,
            callbacks=callbacks,
            plugins=[CheckpointFiles(), *launcher_plugins()],
            use_distributed_sampler=False,  # the data know how to share them
            enable_progress_bar=on_terminal,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
    # Lightning would answer SIGTERM itself, and end without saving.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


@contextmanager
def refusals_in_one_line() -> Iterator[None]:
    """Raise UserError where Lightning, or one of its callbacks, refuses what a user has brought."""
    try:
        yield
    except MisconfigurationException as error:
        raise UserError(" ".join(str(error).split())) from error
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if isinstance(error, UserError) or Path(raised_in).parent != _CALLBACKS:
            raise
        raise UserError(f"callbacks: {Path(raised_in).stem}: {' '.join(str(error).split())}") from error


_CALLBACKS = Path(pytorch_lightning.callbacks.__file__).parent
# Lightning's callbacks that can't work here, each with what does the same.
_REFUSED: dict[type[Callback], str] = {
    BatchSizeFinder: "a batch's size decides the result: data.batch_size sets it",
    LearningRateFinder: "a sweep finds the learning rate, as in -m optim.learning_rate=1e-4,3e-4,1e-3",
    BaseFinetuning: "nothing of the model is frozen: init_from=RUN begins with trained weights",
    ModelPruning: "a pruned parameter is none that optimizers and checkpoints here know: a smaller model.embed_dim is",
    ThroughputMonitor: "it takes functions, which no setting can give: train/tokens_per_s is logged anyway",
    LambdaCallback: "it takes functions, which no setting can give: callbacks.NAME._target_=my_file.Mine has them",
    ProgressBar: "the run has a bar or lines of its own: trainer.log_every_n_steps sets how often the bar is refreshed",
}


def make_callbacks(nodes: Mapping[str, Node], settings: Settings) -> list[Callback]:
    """Make the callbacks that the user brings. Raises SettingError where one refuses its settings, or two have a state
    of one name."""
    own = {callback.state_key: callback for callback in _early_stopping(settings)}
    callbacks: dict[str, Callback] = {**own}
    for name, node in nodes.items():
        kind = imported(node[TARGET], f"callbacks.{name}")
        for lightnings, instead in _REFUSED.items():
            # A class that a user has derived from one of these may well work, but as a second bar.
            surely = str(kind.__module__).startswith("pytorch_lightning.") or lightnings is ProgressBar
            if isinstance(kind, type) and issubclass(kind, lightnings) and surely:
                raise SettingError(f"callbacks.{name}", node[TARGET], f"can't work here; {instead}")
        callback = part(node, f"callbacks.{name}")()
        saves = type(callback).state_dict is not Callback.state_dict
        if saves and callback.state_key in callbacks:  # which Lightning would refuse, once there is a folder
            problem = (
                f"another callback saves its state as {callback.state_key}; a property state_key names it otherwise"
            )
            raise SettingError(f"callbacks.{name}", node[TARGET], problem)
        callbacks[callback.state_key if saves else name] = callback
    return [callback for key, callback in callbacks.items() if key not in own]


def _early_stopping(settings: Settings) -> list[Callback]:
    if settings.early_stopping_patience is None:
        return []
    # At validations, so that what is saved after one knows of it.
    watched, mode = ("val/loss", "min") if settings.monitor == LOSS else (IMPROVEMENTS, "max")
    patience = settings.early_stopping_patience
    return [EarlyStopping(watched, mode=mode, patience=patience, check_on_train_epoch_end=False)]


def _callbacks(
    config: TrainConfig, data: DataModule, folder: RunFolder, stop: StopRequest, brought: Sequence[Callback]
) -> list[Callback]:
    settings, every = config.settings, config.trainer.log_every_n_steps
    limits = Limits(config.trainer.max_steps, settings.target_loss)  # first, because the last step is logged
    callbacks = [FiniteLoss(every), limits, TrainingFigures(every), ValidationLines(), HyperParameters()]
    if not config.trainer.strategy.startswith("fsdp"):  # whose weights are whole in no process
        callbacks += [SampleText(), Pictures()]
    callbacks += data.callbacks()
    callbacks += [ProbeFigures()] if config.evaluation.probes else []
    callbacks += _early_stopping(settings)
    return [
        *callbacks,
        *brought,
        BestWeights(folder),
        ResumePoints(folder, settings.checkpoint_every_n_steps, every, stop),
    ]


def check_trainer(settings: TrainerConfig) -> int:
    """Return how many processes will train. Raises SettingError, naming the setting to blame, for what this machine or
    Lightning can't do."""
    started = launched(settings.devices)
    available = torch.cuda.is_available() or torch.backends.mps.is_available()
    if settings.accelerator in ("gpu", "cuda", "mps") and not available:
        raise SettingError("trainer", settings.accelerator, "torch sees no GPU; valid here: trainer=cpu, trainer=auto")
    if settings.precision == "16-mixed" and (settings.accelerator == "cpu" or not available):
        # Lightning would take bfloat16 instead.
        problem = "needs a GPU; valid on a CPU: 32-true, bf16-mixed, bf16-true, 64-true"
        raise SettingError("trainer.precision", settings.precision, problem)
    if settings.strategy not in ("auto", *StrategyRegistry.available_strategies()):
        problem = f"unknown; {suggestion(settings.strategy, ('auto', 'ddp', 'fsdp', 'deepspeed'))}"
        raise SettingError("trainer.strategy", settings.strategy, f"{problem}, and Lightning's variants of these")
    if not started and settings.devices != "auto":
        _check_devices(settings.devices, on_cpu=settings.accelerator == "cpu" or not available)
    values = asdict(settings)
    changed = {f.name: values[f.name] for f in fields(settings) if values[f.name] != f.default}
    typed = " ".join(f"trainer.{name}={value}" for name, value in changed.items())
    try:
        return _try(typed, values | started)
    except UserError:
        for name, value in changed.items():
            alone = {"accelerator": settings.accelerator, "max_steps": 1, name: value}
            _try(f"trainer.{name}={value}", started | alone)
        raise


def _check_devices(devices: Any, on_cpu: bool) -> None:
    processors, possible = os.cpu_count() or 1, r"-1|[1-9]\d*|\[?\d+(, ?\d+)*\]?"
    problem = "must be auto, a number of devices from 1 on, -1 for all of them, or a list of their numbers as in [0,1]"
    if on_cpu:  # where Lightning would start any number of processes
        possible = "|".join(map(str, range(1, processors + 1)))
        problem = f"must be auto or a number of processes, from 1 to the {processors} processors here"
    if not re.fullmatch(possible, str(devices)):
        raise SettingError("trainer.devices", devices, problem)


def _try(typed: str, settings: dict[str, Any]) -> int:
    """Return the number of processes of a Trainer with these settings. Raises UserError where there can be none."""
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    try:
        return Trainer(**settings, **quiet, plugins=launcher_plugins()).world_size
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(f"{typed}: {first_line(error)}") from error


def check_limits(settings: TrainerConfig, data: DataModule, world_size: int) -> None:
    """Raise SettingError for limits that leave no batch of this process, or no validation within an epoch."""
    training, validation = data.count_batches(world_size)
    for side, batches in (("train", training), ("val", validation)):
        limit = getattr(settings, f"limit_{side}_batches")
        if isinstance(limit, float) and limit != 0 and int(batches * limit) == 0:
            raise SettingError(f"trainer.limit_{side}_batches", limit, f"leaves none of {batches} batches")
    limit, every = settings.limit_train_batches, settings.val_check_interval
    if limit is not None:
        training = int(training * limit) if isinstance(limit, float) else min(training, limit)
    if isinstance(every, int) and every > training and settings.check_val_every_n_epoch is not None:
        problem = f"an epoch has {training} batches; to count across epochs, trainer.check_val_every_n_epoch=null"
        raise SettingError("trainer.val_check_interval", every, problem)


def run_warnings(config: TrainConfig, trainer: Trainer) -> list[str]:
    """Collect what a user should know before the training."""
    notes = config.pos.warnings(config.model.shape_with_memory)
    precision, on_cpu = config.trainer.precision, trainer.strategy.root_device.type == "cpu"
    if on_cpu and precision in ("bf16-mixed", "bf16-true") and not bfloat16_units():  # works, but only in software
        notes.append(f"trainer.precision={precision}: this CPU has no bfloat16 arithmetic; 32-true is faster")
    if config.optim.weight_decay and not takes(config.optimizer, "weight_decay"):
        optimizer, decay = config.optimizer[TARGET], config.optim.weight_decay
        notes.append(f"optim.weight_decay={decay:g}: {optimizer} may have no weight decay, as it has no such argument")
    return notes + compilation_warnings(config, trainer.world_size)


def quieten() -> None:
    """Leave out warnings that the user can't act on, by name; everything else comes through."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices found, tips, "max_epochs reached"
    logging.getLogger("pytorch_lightning.profilers").setLevel(logging.INFO)  # the table of trainer.profiler
    # In-process loading is the fastest here, a window is one slice; data.num_workers is there for who wants more.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The order of batches is a function of the seed and the epoch, and the data know their place in it.
    warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
    # Figures are logged at least once an epoch.
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*")
    # float32 is exact here; who wants speed takes trainer.precision=bf16-mixed.
    warnings.filterwarnings("ignore", message=".*TensorFloat32 tensor cores.*")
    # Lightning's own use of a torch function.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
