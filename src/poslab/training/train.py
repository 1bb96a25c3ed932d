"""One training run, from a checked configuration to a run folder."""

import errno
import logging
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from pytorch_lightning import seed_everything

from poslab.config.files import initial_sha256, write_whole
from poslab.config.program import command_line
from poslab.config.schemes import node_of
from poslab.config.tasks import node_of_task
from poslab.config.train import TrainConfig, flat
from poslab.data.module import DataModule, TextDataModule
from poslab.data.task import TaskDataModule
from poslab.errors import Diverged, Fault, RunStopped, SettingError, UserError, lacks_memory
from poslab.evaluation.scoring import Scoring, TaskScoring, TextScoring
from poslab.hf.pretrained import init_from_pretrained
from poslab.model.decoder import GPT
from poslab.processors import busy_with_others
from poslab.runs.code import code_fingerprint, outside, task_sha256
from poslab.runs.folder import RunFolder, new_run_folder, old_run_folder
from poslab.runs.initial_tables import write_start
from poslab.runs.place import is_first_process, place
from poslab.runs.processes import GONE, processes
from poslab.runs.resumed_run import ResumedRun
from poslab.runs.state import RunState
from poslab.runs.summary import Summary
from poslab.signals import Interrupted, StopRequest
from poslab.tasks import Task
from poslab.training import sharded
from poslab.training.console import conclude, introduce
from poslab.training.device import is_of_connection
from poslab.training.loggers import check_logger
from poslab.training.malloc import keep_freed_memory
from poslab.training.module import LanguageModel
from poslab.training.summary import summarise
from poslab.training.trainer import (
    check_batches,
    check_shares,
    check_trainer,
    compiles,
    limited,
    make_trainer,
    missing_compiler,
    slow_precision,
)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def train(config: TrainConfig) -> Summary:
    """Trains, and returns what summary.json says. Raises UserError for whatever the user can put right, Interrupted
    after Ctrl-C or SIGTERM; the run can then be resumed."""
    code_fingerprint()  # of the code that is loaded now, which may be edited before the run ends
    _quieten()
    keep_freed_memory()
    world_size = check_trainer(config.trainer)
    check_logger(config.logger)
    settings = config.settings
    processes.meet(place())
    processes.check_same(flat(config) | vars(settings))
    with ExitStack() as held:
        earlier = None
        if settings.resume is not None:
            folder = held.enter_context(old_run_folder(Path(os.path.expanduser(settings.resume))))
            earlier = ResumedRun.of(folder, config, world_size)
            config = replace(config, **earlier.facts)
        begins = earlier is None or earlier.checkpoint is None
        if begins and settings.init_from is not None:
            config = replace(config, init_sha256=initial_sha256(settings.init_from))
        module, batches = _prepare(config, world_size, earlier)
        if begins and settings.init_from is not None:
            print(init_from_pretrained(module.model, Path(settings.init_from), module.source.vocabulary))
        processes.together("the beginning")  # all that can be refused has been
        if earlier is None:
            folder = held.enter_context(new_run_folder(settings.run_dir, config.pos_name, settings.seed))
        elif is_first_process():
            earlier.rewind()
        _write_config(config, folder)
        summary = _train(config, module, batches, world_size, folder, earlier)
    processes.leave()
    return summary


def _make_scoring(config: TrainConfig) -> Scoring[Any]:
    """The run's data, and how it judges a model by them."""
    if isinstance(config.data, Task):
        return TaskScoring(config, TaskDataModule(config.data, task_sha256(config.data), config.settings.seed))
    model = config.model
    return TextScoring(config, TextDataModule(config.data, model.context_length, config.settings.seed, model.reach))


def _prepare(config: TrainConfig, world_size: int, earlier: ResumedRun | None = None) -> tuple[LanguageModel, int]:
    """(module, training batches of an epoch): all that can fail before a folder is made. earlier: the run that goes on,
    with as many threads as before; with another number, sums are rounded otherwise."""
    check_shares(config.data.batch_size, world_size)
    sha256 = None if processes.first else processes.ask("data")  # of what the first has read and cached
    scoring = _make_scoring(config)
    if earlier is not None:
        earlier.check_text(scoring.data.sha256)
    if sha256 not in (None, scoring.data.sha256):
        raise UserError(f"data: process {processes.rank} has other data than process 0")
    if processes.first:
        processes.tell("data", scoring.data.sha256)
    threads = config.settings.threads or (earlier and earlier.threads)
    if threads:
        torch.set_num_threads(threads)
        if world_size > 1:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # or Lightning would divide the processors
    seed_everything(config.settings.seed, workers=True, verbose=False)
    data: DataModule = scoring.data
    model = _make_model(config, data.vocabulary.size)
    if shares_weights := config.trainer.strategy in sharded.NAMES:
        sharded.check(config.trainer.strategy, model, world_size)
    module = (sharded.ShardedLanguageModel if shares_weights else LanguageModel)(model, config, data, scoring)
    of_validation = data.count_validation_batches()
    batches = check_batches(config.trainer, len(data.train_dataloader()), of_validation)
    data.validation_batches = limited(of_validation, config.trainer.limit_val_batches)
    return module, batches


def _train(
    config: TrainConfig,
    module: LanguageModel,
    train_batches: int,
    world_size: int,
    folder: RunFolder,
    earlier: ResumedRun | None = None,
) -> Summary:
    every = min(config.trainer.log_every_n_steps, train_batches)
    stop = StopRequest()
    scoring = module.scoring
    data: DataModule = scoring.data
    trainer = make_trainer(config, folder, every, scoring, stop, world_size)
    if trainer.is_global_zero:
        reach = config.model.context_length + config.model.memory_length
        seen = replace(config.model.shape, context_length=reach)
        notes = config.pos.warnings(seen) + slow_precision(config.trainer, trainer.strategy.root_device)
        notes += missing_compiler(config.model, config.trainer)
        if config.settings.threads is None and world_size == 1:
            notes += busy_with_others()
        notes += earlier.notes if earlier else []
        introduce(module, data, folder, notes, earlier.state.step if earlier else None)
    # Lightning does so only after it has loaded the weights, which then would pass through 32 bits.
    trainer.precision_plugin.convert_module(module)
    with _saying_how_to_go_on(folder, ["allow_code=true"] if _needs_code(config) else []):
        if trainer.is_global_zero and not (earlier and earlier.checkpoint) and config.pos.overrides("tables"):
            write_start(folder, dict(module.model.position_tables.named_parameters()))
        if trainer.is_global_zero:
            folder.diverged.unlink(missing_ok=True)
        with stop.listening():
            try:
                trainer.fit(module, data, ckpt_path=earlier.checkpoint if earlier else None, weights_only=True)
            except Diverged:
                if trainer.is_global_zero:  # so that a comparison counts it, and not only those that survived
                    replace(summarise(module, data, trainer), last_val_loss=None).write(folder.diverged)
                raise
        summary = summarise(module, data, trainer)
        if trainer.is_global_zero:
            summary = replace(summary, metrics=scoring.test(folder.path), test_loss=scoring.held_out_loss(folder.path))
            summary.write(folder.summary)  # last: what has one is finished
            folder.previous.unlink(missing_ok=True)
            conclude(summary, module, folder)
    _check_target(config.settings.target_loss, module.state)
    return summary


def _write_config(config: TrainConfig, folder: RunFolder) -> None:
    """config.yaml, which appears whole or not at all; by the first process, if there are several."""
    if not is_first_process():
        return
    content = yaml.safe_dump(config.recorded, sort_keys=False, allow_unicode=True)
    write_whole(folder.config, content)


def _needs_code(config: TrainConfig) -> bool:
    """Whether the scheme or the task is from outside poslab."""
    task = [node_of_task(config.data)] if isinstance(config.data, Task) else []
    return any(map(outside, [node_of(config.pos), *task]))


@contextmanager
def _saying_how_to_go_on(folder: RunFolder, needed: list[str]) -> Iterator[None]:
    """needed: what the command line must also say to go on."""
    command = command_line("train", f"resume={folder}", *needed)
    if not Path(sys.argv[0]).resolve().is_relative_to(Path.cwd()):  # one that holds only in the folder of now
        command = shlex.join(["cd", str(Path.cwd())]) + f" && {command}"
    threading.excepthook = _report_of_thread
    try:
        yield
    except Interrupted as interrupted:
        raise Interrupted(interrupted.number, f"{interrupted}; go on with: {command}") from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise Fault(folder.path, error) from error
        kept = "its checkpoints are intact" if folder.resumable else "it has no checkpoint yet"
        raise RunStopped(f"{folder}: {error.strerror}; {kept}. Make room and go on with: {command}") from error
    except UserError:
        raise
    except Exception as error:
        if is_of_connection(error):
            raise RunStopped(f"{folder}: another process of the run is gone: {GONE}") from error
        raise Fault(folder.path, error) from error
    finally:
        threading.excepthook = threading.__excepthook__


def _report_of_thread(fault: threading.ExceptHookArgs) -> None:
    """A full disk is met by the thread that writes TensorBoard's files, but comes up, and is told, in the main one."""
    if getattr(fault.exc_value, "errno", None) not in _NO_ROOM:
        threading.__excepthook__(fault)


def _check_target(target: float | None, state: RunState) -> None:
    """Raises RunStopped where a loss was to be reached, and wasn't."""
    if target is not None and not state.batch_loss < target:
        problem = f"not reached in {state.step} steps; the last batch's loss was {state.batch_loss:.4f}"
        raise RunStopped(f"target_loss={target:g}: {problem}")


def _make_model(config: TrainConfig, vocab_size: int) -> GPT:
    try:
        settings = vars(config.model) | {"compile": compiles(config.model, config.trainer)}
        return GPT(config.pos, vocab_size=vocab_size, **settings)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model") from None
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        sizes = {name: size for name, size in flat(config).items() if name.startswith(("model.", "pos."))}
        largest = max((name for name, size in sizes.items() if type(size) is int), key=lambda name: sizes[name])
        problem = "the model does not fit into memory, and this is the largest of its sizes"
        raise SettingError(largest, sizes[largest], problem) from error


def _quieten() -> None:
    """Leaves out what the user can't act on, by name; everything else comes through."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices found, tips, "max_epochs reached"
    # In-process loading is the fastest here, a window is one slice; data.num_workers is there for who wants more.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The order of batches is a function of the seed and the epoch; `Shuffled` goes on within it.
    warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
    # Lightning's own use of a torch function.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
