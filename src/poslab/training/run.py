"""One training run, from a checked configuration to a run folder."""

import logging
import math
import sys
import time
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import OmegaConf
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from poslab.config import TrainConfig
from poslab.data.module import TextDataModule
from poslab.errors import SettingError, UserError
from poslab.model import GPT
from poslab.training.console import ProgressBar, ValidationLines, clock, one_line
from poslab.training.module import LanguageModel, perplexity
from poslab.training.run_folder import claim_run_folder
from poslab.training.summary import summarise, write_summary
from poslab.training.tensorboard import Comparison, Logger, Pictures, SampleText
from poslab.training.throughput import Throughput


def train(config: TrainConfig) -> dict[str, Any]:
    """Trains, and returns what summary.json says. Raises UserError for whatever the user can put right."""
    _quieten()
    data = TextDataModule(config.data, config.model.context_length, config.settings.seed)
    seed_everything(config.settings.seed, workers=True, verbose=False)
    module = LanguageModel(_make_model(config, data.tokenizer.n_vocab), config)
    _check_trainer(config, len(data.train_dataloader()))
    folder = claim_run_folder(config.settings.run_dir, config.pos_name, config.settings.seed)
    OmegaConf.save(OmegaConf.create(config.plain), folder / "config.yaml")

    throughput = Throughput()
    sample = SampleText(config.sample, data.tokenizer, _prompt(config, data), config.settings.seed)
    trainer = _make_trainer(config, folder, [throughput, ValidationLines(throughput), sample], throughput)
    if trainer.is_global_zero:
        _introduce(module, data, folder)
    started = time.perf_counter()
    trainer.fit(module, data)
    summary = summarise(module, data, trainer, throughput, time.perf_counter() - started)
    if trainer.is_global_zero:
        write_summary(folder, summary)
        _conclude(summary, sample.text, folder)
    return summary


def _make_model(config: TrainConfig, vocab_size: int) -> GPT:
    try:
        return GPT(config.pos, vocab_size=vocab_size, **asdict(config.model))
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        problem = "the model does not fit into memory; choose smaller sizes under model, or for the scheme's tables"
        raise UserError(problem) from error


def _make_trainer(config: TrainConfig, folder: Path, callbacks: list[Callback], throughput: Throughput) -> Trainer:
    callbacks += [Comparison(), Pictures()]
    # The best weights to use, and the last of everything to go on from.
    checkpoints = folder / "checkpoints"
    best = ModelCheckpoint(
        checkpoints, "best", monitor="val/loss", save_weights_only=True, enable_version_counter=False
    )
    last = ModelCheckpoint(checkpoints, "last", enable_version_counter=False)
    callbacks += [last] if config.trainer.limit_val_batches == 0 else [best, last]  # no validation, no best
    if config.settings.early_stopping_patience is not None:
        callbacks.append(EarlyStopping("val/loss", patience=config.settings.early_stopping_patience))
    if sys.stderr.isatty():
        callbacks.append(ProgressBar(throughput))
    return Trainer(
        **asdict(config.trainer),
        logger=Logger(folder, name="", version=""),
        callbacks=callbacks,
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _check_trainer(config: TrainConfig, batches_per_epoch: int) -> None:
    """Raises SettingError for what this machine or Lightning can't do, before anything is written."""
    settings = config.trainer
    available = torch.cuda.is_available() or torch.backends.mps.is_available()
    if settings.accelerator in ("gpu", "cuda", "mps") and not available:
        raise SettingError("trainer", settings.accelerator, "torch sees no GPU; valid here: trainer=cpu, trainer=auto")
    every = settings.val_check_interval
    if isinstance(every, int) and every > batches_per_epoch and settings.check_val_every_n_epoch is not None:
        problem = (
            f"an epoch has {batches_per_epoch} batches; to count across epochs, trainer.check_val_every_n_epoch=null"
        )
        raise SettingError("trainer.val_check_interval", every, problem)
    try:
        Trainer(**asdict(settings), logger=False, enable_checkpointing=False, enable_progress_bar=False)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        given = {field.name: getattr(settings, field.name) for field in fields(settings)}
        changed = [f"trainer.{f.name}={given[f.name]}" for f in fields(settings) if given[f.name] != f.default]
        raise UserError(f"{' '.join(changed)}: {str(error).splitlines()[0]}") from error


def _prompt(config: TrainConfig, data: TextDataModule) -> list[int]:
    """What the sample texts go on from: the prompt given, or the first words of the validation text."""
    prompt = config.sample.prompt
    if not prompt:
        opening = data.tokenizer.decode(data.corpus.validation[:12].tolist())
        prompt = opening.partition(" ")[2] or opening  # the split may have cut a word in two
    return data.tokenizer.encode_ordinary(prompt)


def _introduce(module: LanguageModel, data: TextDataModule, folder: Path) -> None:
    config, counts = module.config, module.model.parameter_counts()
    for warning in config.pos.warnings(config.model.shape):
        print(f"warning: {warning}", file=sys.stderr)
    settings = ", ".join(f"{k}={v}" for k, v in config.plain["pos"].items() if k != "_target_")
    print(f"scheme   {config.pos_name}{f' ({settings})' if settings else ''}, seed {config.settings.seed}")
    print(f"model    {counts['total']:,} parameters, {counts['scheme']:,} of them for position")
    print(
        f"data     {data.corpus.name}, {len(data.corpus.train):,} training and "
        f"{len(data.corpus.validation):,} validation tokens"
    )
    print(f"run      {folder}\n")


def _conclude(summary: dict[str, Any], sample: str, folder: Path) -> None:
    best, steps = summary["best_val_loss"], summary["steps"]
    if math.isfinite(best):
        at = f"at step {summary['best_step']} of {steps}"
        print(f"\nbest     validation loss {best:.4f}, perplexity {perplexity(best):,.1f}, {at}")
    else:
        print("\nbest     none: no validation gave a finite loss")
    duration, speed = clock(summary["wall_time_s"]), summary["tokens_per_s"]
    print(f"speed    {summary['tokens']:,} tokens in {duration}, {speed:,.0f} tokens/s")
    if sample:
        print(f"sample   {one_line(sample, indent=9)}")
    print(f"run      {folder}")
    print(f"compare  tensorboard --logdir {folder.parent}")


def _quieten() -> None:
    """Leaves out what the user can't act on, by name; everything else comes through."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices found, tips, "max_epochs reached"
    # In-process loading is the fastest here, a window is one slice; data.num_workers is there for who wants more.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # Lightning's own use of a torch function.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
