"""One training run, from a checked configuration to a run folder."""

from contextlib import ExitStack
from dataclasses import replace

import yaml
from pytorch_lightning import Trainer, seed_everything

from poslab.config.files import write_whole
from poslab.config.train import TrainConfig
from poslab.contract import try_before_training
from poslab.errors import Diverged
from poslab.processes import rank
from poslab.processors import compute_on
from poslab.runs.code import code_fingerprint
from poslab.runs.folder import RunFolder, new_run_folder
from poslab.runs.summary import Summary
from poslab.signals import StopRequest
from poslab.training.console import conclude, introduce
from poslab.training.data import make_data
from poslab.training.initial_model import make_model
from poslab.training.loggers import check_loggers, commands_of
from poslab.training.machine import check_attention_device, keep_freed_memory
from poslab.training.module import LanguageModel
from poslab.training.optimizer import make_schedule
from poslab.training.resume import ResumedRun, open_run_to_resume, resume_hints
from poslab.training.run_ends import check_target
from poslab.training.summary import summarise
from poslab.training.trainer import (
    check_limits,
    check_trainer,
    make_callbacks,
    make_trainer,
    quieten,
    refusals_in_one_line,
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
    check_attention_device(config.model, config.trainer)
    check_loggers(config.logger)
    processes = check_trainer(config.trainer)
    try_before_training(config)
    with ExitStack() as held:
        earlier = held.enter_context(open_run_to_resume(config))
        config = replace(config, **earlier.provenance)
        compute_on(config.settings.threads or earlier.state.threads)
        seed_everything(config.settings.seed, workers=True, verbose=False)
        data = make_data(config)
        check_limits(config.trainer, data, processes)
        model = make_model(config, data.vocabulary, processes, new=earlier.checkpoint is None)
        module = LanguageModel(model, config, data)
        # Parts may refuse their settings, so they are made once before anything is written.
        module.make_optimizer()
        make_schedule(config.schedule)
        callbacks = make_callbacks(config.callbacks, config.settings)
        if earlier.folder is not None:
            folder = earlier.rewind(data)
        else:
            folder = held.enter_context(new_run_folder(config.settings.run_dir, config.pos_name, config.settings.seed))
        if rank() == 0:  # the first file, by which a run that is killed from now on can be resumed
            write_whole(folder.config, yaml.safe_dump(config.recorded, sort_keys=False, allow_unicode=True))
            folder.diverged.unlink(missing_ok=True)
        stop = StopRequest()
        trainer = make_trainer(config, data, folder, stop, callbacks)
        # Lightning does so only after it has loaded the weights, which then would pass through 32 bits.
        trainer.precision_plugin.convert_module(module)
        if rank() == 0:
            introduce(module, folder, run_warnings(config, trainer) + earlier.notes, earlier.words)
        with resume_hints(folder, config):
            with stop.listening(), refusals_in_one_line():
                _fit(trainer, module, folder, earlier)
            summary = summarise(module, trainer)
            if rank() == 0:
                summary = replace(summary, **data.test(folder.path))
                summary.write(folder.summary)  # last: what has one is finished
                folder.previous.unlink(missing_ok=True)
                if folder.best.exists() and not config.settings.keep_last:
                    folder.last.unlink(missing_ok=True)
                conclude(summary, module, folder, commands_of(trainer.loggers))
    check_target(config.settings.target_loss, module.state)
    return summary


def _fit(trainer: Trainer, module: LanguageModel, folder: RunFolder, earlier: ResumedRun) -> None:
    try:
        trainer.fit(module, module.data, ckpt_path=earlier.checkpoint, weights_only=True)
    except Diverged:
        if rank() == 0:  # so that a comparison counts it, and not only those that survived
            replace(summarise(module, trainer), last_val_loss=None).write(folder.diverged)
        raise
