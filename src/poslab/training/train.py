"""One training run, from a checked configuration to a run folder."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import yaml
from pytorch_lightning import seed_everything

from poslab import distributed
from poslab.config.files import write_whole
from poslab.config.groups import flat
from poslab.config.train import TrainConfig
from poslab.data.module import TextDataModule
from poslab.data.task import TaskDataModule
from poslab.distributed import is_first_process
from poslab.errors import Diverged, SettingError, lacks_memory
from poslab.evaluation.scoring import Scoring, TaskScoring, TextScoring
from poslab.model.decoder import GPT
from poslab.model.memory import decoder_of
from poslab.runs.checkpoint_files import write_start
from poslab.runs.code import code_fingerprint, task_sha256
from poslab.runs.folder import RunFolder, new_run_folder
from poslab.runs.initial import initial_fields
from poslab.runs.summary import Summary
from poslab.signals import StopRequest
from poslab.tasks import Task
from poslab.training import sharded
from poslab.training.console import conclude, introduce
from poslab.training.initial_weights import init_from
from poslab.training.loggers import check_logger
from poslab.training.machine import check_flex, compiles, keep_freed_memory, set_threads
from poslab.training.module import LanguageModel
from poslab.training.resume import ResumedRun, open_run_to_resume, resume_hints
from poslab.training.run_ends import check_target
from poslab.training.summary import backend_words, summarise, training_choices
from poslab.training.trainer import (
    check_batch_size,
    check_trainer,
    limit_batches,
    make_trainer,
    quieten,
    run_warnings,
)


def train(config: TrainConfig) -> Summary:
    """Train, and return what summary.json says.

    Raises UserError for whatever the user can put right, and Interrupted after Ctrl-C or SIGTERM; the run can then be
    resumed.
    """
    code_fingerprint()  # of the code that is loaded now, which may be edited before the run ends
    quieten()
    keep_freed_memory()
    world_size = check_trainer(config.trainer)
    check_flex(config.model, config.trainer)
    check_batch_size(config.data.batch_size, world_size)
    check_logger(config.logger)
    distributed.init()
    distributed.check_same(flat(config.plain) | vars(config.settings))
    with ExitStack() as held:
        earlier = held.enter_context(open_run_to_resume(config, world_size)) if config.settings.resume else None
        provenance = earlier.provenance if earlier else initial_fields(config.settings.init_from)
        summary = _train(replace(config, **provenance), earlier, world_size, held)
    distributed.close()
    return summary


def _train(config: TrainConfig, earlier: ResumedRun | None, world_size: int, held: ExitStack) -> Summary:
    """Train from the settings to the summary. earlier: the run that resumes. held: keeps the lock of a new folder."""
    set_threads(config.settings.threads or (earlier.state.threads if earlier else None), world_size)
    seed_everything(config.settings.seed, workers=True, verbose=False)

    with distributed.first_process_first():
        data = _make_data(config)
    scoring = TaskScoring(config, data) if isinstance(data, TaskDataModule) else TextScoring(config, data)
    distributed.check_same({"data": data.sha256})

    model = _make_model(config, data.vocabulary.size)
    module = _make_module(model, config, scoring, world_size)
    checkpoint = earlier.checkpoint if earlier else None
    if config.settings.init_from is not None and checkpoint is None:
        print(init_from(model, config.settings.init_from, data.vocabulary))

    train_batches = limit_batches(config.trainer, data)
    distributed.barrier()  # all that can be refused has been
    if earlier:
        folder = earlier.rewind(data.sha256)
    else:
        folder = held.enter_context(new_run_folder(config.settings.run_dir, config.pos_name, config.settings.seed))
    if is_first_process():
        write_whole(folder.config, yaml.safe_dump(config.recorded, sort_keys=False, allow_unicode=True))

    every, stop = min(config.trainer.log_every_n_steps, train_batches), StopRequest()
    trainer = make_trainer(config, folder, every, stop, world_size)
    # Lightning does so only after it has loaded the weights, which then would pass through 32 bits.
    trainer.precision_plugin.convert_module(module)
    if trainer.is_global_zero:
        notes = run_warnings(config, trainer) + (earlier.notes if earlier else [])
        backends = backend_words(training_choices(module.model, trainer.strategy.root_device))
        introduce(module, folder, backends, notes, earlier.state.step if earlier else None)

    with resume_hints(folder, config):
        if trainer.is_global_zero:
            _prepare_folder(folder, module, new=checkpoint is None)
        with stop.listening():
            try:
                # Restores weights, optimiser and loops. `on_load_checkpoint` of LanguageModel and Checkpoints: run
                # state, memory, place in the data. `Checkpoints.on_train_start`: random numbers, learning rate.
                trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
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
    check_target(config.settings.target_loss, module.state)
    return summary


def _make_data(config: TrainConfig) -> TaskDataModule | TextDataModule:
    model, seed = config.model, config.settings.seed
    if isinstance(config.data, Task):
        return TaskDataModule(config.data, task_sha256(config.data), seed)
    return TextDataModule(config.data, model.context_length, seed, model.reach)


def _make_model(config: TrainConfig, vocab_size: int) -> GPT:
    """Make the model. Raises SettingError, naming the largest size, where it doesn't fit into memory."""
    try:
        settings = vars(config.model) | {"compile": compiles(config.model, config.trainer)}
        return decoder_of(config.pos, vocab_size=vocab_size, **settings)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model") from None
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        sizes = {name: size for name, size in flat(config.plain).items() if name.startswith(("model.", "pos."))}
        largest = max((name for name, size in sizes.items() if type(size) is int), key=lambda name: sizes[name])
        problem = "the model does not fit into memory, and this is the largest of its sizes"
        raise SettingError(largest, sizes[largest], problem) from error


def _make_module(model: GPT, config: TrainConfig, scoring: Scoring[Any], world_size: int) -> LanguageModel:
    if config.trainer.strategy not in sharded.NAMES:
        return LanguageModel(model, config, scoring)
    if config.evaluation.probes:
        raise SettingError("evaluation.probes", True, f"needs whole weights, which {config.trainer.strategy} divides")
    sharded.check(config.trainer.strategy, model, world_size)
    return sharded.ShardedLanguageModel(model, config, scoring)


def _prepare_folder(folder: RunFolder, module: LanguageModel, new: bool) -> None:
    """Save the scheme's initial parameters if the run is new, and remove the mark of an earlier divergence."""
    if new and module.config.pos.overrides("tables"):
        write_start(folder, dict(module.model.position_tables.named_parameters()))
    folder.diverged.unlink(missing_ok=True)
