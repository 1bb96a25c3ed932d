"""TensorBoard's entries beside the scalars: settings to compare runs by, sample texts, and pictures of the scheme."""

import math
import textwrap
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard.summary import hparams

from poslab.evaluation.attention_maps import LEGIBLE, attention_maps
from poslab.evaluation.pictures import attention_figure, draw
from poslab.evaluation.scoring import Scoring
from poslab.runs.screen import printable
from poslab.training.console import width
from poslab.training.loggers import writer_of
from poslab.training.module import ours
from poslab.training.summary import flat_settings

# The scalars that the HPARAMS tab lists beside the settings, and the figures of a validation.
_METRICS = ("val/best_loss", "val/loss", "train/loss", "train/tokens_per_s")


class HyperParameters(Callback):
    """Callback that fills the HPARAMS tab, from the first step on; other loggers get the settings, too."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer, module = writer_of(trainer), ours(pl_module)
        if writer is None or trainer.global_step:  # a run that resumes has them already
            return
        settings = flat_settings(module.config)
        metrics = [*_METRICS, *(f"val/{figure.name}" for figure in module.scoring.figures)]
        experiment, start, _ = hparams(settings, dict.fromkeys(metrics, 0.0))
        _show_first(experiment, ("pos", "seed"))
        writer.file_writer.add_summary(experiment)
        writer.file_writer.add_summary(start)
        for other in trainer.loggers[1:]:
            other.log_hyperparams(settings)


def _show_first(experiment: Any, names: tuple[str, ...]) -> None:
    """Mark columns as differing: TensorBoard shows these before all others, which it puts in alphabetical order."""
    (content,) = experiment.value
    data = HParamsPluginData.FromString(content.metadata.plugin_data.content)
    for info in data.experiment.hparam_infos:
        info.differs = info.name in names
    content.metadata.plugin_data.content = data.SerializeToString()


class SampleText(Callback):
    """Callback that lets the model write at every validation."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer, module = writer_of(trainer), ours(pl_module)
        if writer is None or not module.config.sample.new_tokens:
            return
        if not math.isfinite(module.state.last_val_loss):  # such a model writes nothing
            return
        line, page = module.scoring.sample(module.model)
        module.state.sample = line = printable(line)
        module.print("       " + textwrap.shorten(line, width() - 8, placeholder=" ..."))
        writer.add_text("sample", page, trainer.global_step)


class Pictures(Callback):
    """Callback that draws what the scheme has learned and where the model looks in the samples' prompt.

    At the first validation, at those whose step is at least twice that of the picture before, and at the last: a
    picture takes as long as fifty steps of a small model, which learns ever more slowly.
    """

    def __init__(self, scoring: Scoring[Any]) -> None:
        self.scoring = scoring
        self.drawn = 0  # the step of the last pictures, and that of the last validation
        self.validated = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validated = trainer.global_step
        if self.validated >= 2 * self.drawn:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.drawn < self.validated == trainer.global_step:
            self._draw(trainer, pl_module)

    def state_dict(self) -> dict[str, int]:
        return {"drawn": self.drawn, "validated": self.validated}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.drawn, self.validated = state_dict["drawn"], state_dict["validated"]

    def _draw(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.drawn = trainer.global_step
        writer, module = writer_of(trainer), ours(pl_module)
        if writer is None:
            return
        model, step = module.model, trainer.global_step
        for name, picture in model.pictures().items():
            writer.add_figure(f"pos/{name}", draw(picture, caption=True), step)
        count, scoring = min(LEGIBLE, model.shape.context_length), self.scoring
        words = scoring.prompt[:count]
        positions = None if scoring.positions is None else scoring.positions[:count]
        maps = attention_maps(model, torch.tensor(words), positions)
        name, texts = module.config.pos_name, [scoring.data.vocabulary.decode([word]) for word in words]
        writer.add_figure("attention", attention_figure({name: maps}, texts), step)
