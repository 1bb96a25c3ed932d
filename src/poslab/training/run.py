"""One training run, from a checked configuration to a run folder."""

import logging
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from pytorch_lightning import Trainer, seed_everything

from poslab.analysis.evaluation_files import Text, evaluate_checkpoint, write_evaluation
from poslab.checkpoint import find_checkpoint, load_checkpoint
from poslab.config import TrainConfig
from poslab.data.module import TextDataModule
from poslab.errors import SettingError, UserError
from poslab.memory import keep_freed_memory
from poslab.model import GPT
from poslab.training.console import conclude, introduce
from poslab.training.module import LanguageModel
from poslab.training.run_folder import claim_run_folder
from poslab.training.summary import summarise, write_summary
from poslab.training.tensorboard import SampleText
from poslab.training.throughput import Throughput
from poslab.training.trainer import check_batches, check_trainer, make_trainer, slow_precision


def train(config: TrainConfig) -> dict[str, Any]:
    """Trains, and returns what summary.json says. Raises UserError for whatever the user can put right."""
    _quieten()
    keep_freed_memory()
    if config.settings.threads is not None:
        torch.set_num_threads(config.settings.threads)
    check_trainer(config.trainer)
    if config.model.attention_backend == "flex" and not torch.cuda.is_available():
        raise SettingError("model.attention_backend", "flex", "trains on a CUDA device only, and torch sees none")
    data = TextDataModule(config.data, config.model.context_length, config.settings.seed)
    seed_everything(config.settings.seed, workers=True, verbose=False)
    module = LanguageModel(_make_model(config, data.vocabulary.size), config, data.corpus)
    train_batches = check_batches(config.trainer, len(data.train_dataloader()), len(data.val_dataloader()))
    prompt = _prompt(config, data)
    folder = claim_run_folder(config.settings.run_dir, config.pos_name, config.settings.seed)
    throughput = Throughput(min(config.trainer.log_every_n_steps, train_batches))
    sample = SampleText(config.sample, data.vocabulary, prompt, config.settings.seed)
    trainer = make_trainer(config, folder, throughput, sample)
    if trainer.is_global_zero:
        OmegaConf.save(OmegaConf.create(config.plain), folder / "config.yaml")
        notes = config.pos.warnings(config.model.shape) + slow_precision(config.trainer, trainer.strategy.root_device)
        introduce(module, data, folder, notes)
    started = time.perf_counter()
    _fit(trainer, module, data)
    summary = summarise(module, data, trainer, throughput, time.perf_counter() - started)
    if trainer.is_global_zero:
        if config.evaluation.lengths:
            _evaluate(config, data, folder)
        write_summary(folder, summary)  # last: what has one is finished
        conclude(summary, sample.text, folder)
    return summary


def _fit(trainer: Trainer, module: LanguageModel, data: TextDataModule) -> None:
    """Trains; an interruption stays one, where Lightning would leave with an exit code of its own."""
    try:
        trainer.fit(module, data)
    except SystemExit:
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise


def _evaluate(config: TrainConfig, data: TextDataModule, folder: Path) -> None:
    """Measures the best weights at the lengths asked for."""
    lengths, stride = config.evaluation.lengths, config.evaluation.stride
    print(f"\nevaluating at lengths {', '.join(map(str, lengths))} ...", flush=True)
    checkpoint = load_checkpoint(find_checkpoint(str(folder)), allow_code=True)
    text = Text(f"{data.corpus.name}, validation part", data.corpus.sha256, data.corpus.validation)
    write_evaluation(folder, text, evaluate_checkpoint(checkpoint, text, lengths, stride))


def _make_model(config: TrainConfig, vocab_size: int) -> GPT:
    try:
        return GPT(config.pos, vocab_size=vocab_size, **asdict(config.model))
    except SettingError as error:
        raise error.prefixed("model") from None
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        problem = "the model does not fit into memory; choose smaller sizes under model, or for the scheme's tables"
        raise UserError(problem) from error


def _prompt(config: TrainConfig, data: TextDataModule) -> list[int]:
    """What the sample texts go on from: the prompt given, or the first words of the validation text."""
    if config.sample.prompt:
        return data.vocabulary.encode(config.sample.prompt, "sample.prompt")
    opening = data.corpus.validation[:12].tolist()
    # The split may have cut a word in two.
    words = (i for i in range(1, len(opening)) if data.vocabulary.decode(opening[i : i + 1]).startswith(" "))
    return opening[next(words, 0) :]


def _quieten() -> None:
    """Leaves out what the user can't act on, by name; everything else comes through."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices found, tips, "max_epochs reached"
    # In-process loading is the fastest here, a window is one slice; data.num_workers is there for who wants more.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # Lightning's own use of a torch function.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
