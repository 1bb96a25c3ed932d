"""Loggers of a run: always TensorBoard, which reports read their curves from, and those of Lightning's that `logger`
names. All get the same keys. TensorBoard shows beside the scalars settings to compare runs by, sample texts, and
pictures of the scheme."""

import hashlib
import logging
import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from poslab.config.checking import imported
from poslab.config.files import write_whole
from poslab.config.nodes import TARGET, given_settings
from poslab.config.parts import Node, part, takes
from poslab.errors import SettingError, UserError
from poslab.evaluation.pictures import LEGIBLE, attention_figure, attention_maps, draw
from poslab.metric import tag_of
from poslab.processes import rank
from poslab.runs.folder import RunFolder
from poslab.training.console import width
from poslab.training.module import language_model_of
from poslab.training.summary import flat_settings
from seedstats.page.terminal import visible


def check_loggers(nodes: Mapping[str, Node]) -> None:
    """Raise SettingError where the package of a logger is not installed."""
    for name, node in nodes.items():
        package = getattr(imported(node[TARGET], f"logger.{name}"), "package", None)
        if package is not None and find_spec(package) is None:
            extra = f'pip install "poslab[{package}]"'
            raise SettingError("logger", name, f"needs a package that is not installed: {extra}")


def make_loggers(nodes: Mapping[str, Node], folder: RunFolder) -> list[Logger]:
    """Make the loggers, TensorBoard's first; one that takes `save_dir` writes into the run's folder, if not told
    otherwise. Raises UserError where one can't begin, such as for want of a server."""
    loggers: list[Logger] = [TensorBoard(folder.path, name="", version="")]
    for name, node in nodes.items():
        place = {"save_dir": folder.path} if takes(node, "save_dir") and "save_dir" not in node else {}
        try:
            loggers.append(part(node, f"logger.{name}")(**place))
            getattr(loggers[-1], "experiment", None)  # which begins its run, in a logger that has one
        except Exception as error:  # whatever its packages, a file or a server raise
            problem = error if isinstance(error, UserError) else f"logger={name}: {error}"
            again = f"; {shlex.quote(f'resume={folder}')} tries again" if folder.is_run else ""
            raise UserError(" ".join(f"{problem}{again}".split())) from error
    return loggers


def commands_of(loggers: Iterable[Logger]) -> dict[str, str]:
    """Return what a user may type once a run is over, by what it does."""
    return {name: command for logger in loggers for name, command in getattr(logger, "commands", {}).items()}


def writer_of(trainer: Trainer) -> Any:
    """Return TensorBoard's SummaryWriter, in the process that writes; None in others."""
    writer = trainer.logger.experiment if isinstance(trainer.logger, TensorBoard) else None
    return writer if isinstance(writer, SummaryWriter) else None


class TensorBoard(TensorBoardLogger):
    """TensorBoard's logger, straight into the run folder, without the hparams.yaml that Lightning would add, and
    without the epoch, which Lightning adds to all metrics: its chart would stand before those of the losses."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics({tag_of(name): value for name, value in metrics.items() if name != "epoch"}, step)

    def save(self) -> None:
        self.experiment.flush()


class Wandb(WandbLogger):
    """W&B's logger, whose run goes on where poslab's does, as Lightning's would begin another one: the folder of before
    has its id in its name. It is closed with the training, as a job of a sweep ends without Python's exit functions."""

    package = "wandb"

    def __init__(self, save_dir: Path, project: str = "poslab", offline: bool = True, **settings: Any) -> None:
        import wandb

        before = sorted((Path(save_dir) / "wandb").glob("*run-*-*"))
        own = {
            "name": Path(save_dir).name,
            "id": before[-1].name.rpartition("-")[2] if before else None,
            "settings": wandb.Settings(silent=offline, console="off"),  # the screen's text stays with the screen
        }
        super().__init__(save_dir=save_dir, project=project, offline=offline, **{**own, **settings})
        self._wandb_init.pop("anonymous", None)  # which Lightning passes, and wandb warns that it has no effect

    @property
    def commands(self) -> dict[str, str]:
        """Return what uploads a run that was logged offline."""
        return {"upload": f"wandb sync {shlex.quote(str(self.save_dir))}/wandb/offline-run-*"} if self._offline else {}

    def finalize(self, status: str) -> None:
        super().finalize(status)
        self.experiment.finish(exit_code=int(status != "success"))


class MLFlow(MLFlowLogger):
    """MLflow's logger, whose run goes on where poslab's does, as Lightning's would begin another one: the folder keeps
    its id in mlflow/run_id, beside where MLflow has it."""

    package = "mlflow"

    def __init__(
        self, save_dir: Path, experiment_name: str = "poslab", tracking_uri: str | None = None, **settings: Any
    ) -> None:
        import mlflow

        for name in ("mlflow", "alembic", "pytorch_lightning.loggers.mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)  # tables created, an experiment not found and thus created
        uri, kept = tracking_uri or mlflow.get_tracking_uri(), Path(save_dir) / "mlflow" / "run_id"
        kept_id = dict([kept.read_text().split("\n")[:2]]) if kept.exists() else {}
        own = {"run_name": Path(save_dir).name, "run_id": kept_id.get(uri)}
        super().__init__(experiment_name, tracking_uri=uri, **{**own, **settings})
        if rank() == 0:
            kept.parent.mkdir(exist_ok=True)
            write_whole(kept, f"{uri}\n{self.run_id}\n")


# Entries of TensorBoard beside the scalars. Its first tab shows tags of all kinds in alphabetical order: `eval`, then
# `train`, then what begins with "val_", which are pictures and probes.


# What the HPARAMS tab always shows: settings, and scalars beside the figures of a validation.
_COLUMNS = ("pos", "optim.learning_rate", "model.context_length")
_METRICS = ("val/loss", "val/best_loss", "train/loss", "train/tokens_per_s")


class HyperParameters(Callback):
    """Callback that fills the HPARAMS tab, from the first step on; other loggers get the settings, too.

    Runs that differ in nothing but the seed are one row of the tab, whose figures are their means. Every run has all
    settings. Columns are few, so that the losses stand on the screen: the scheme, sizes of `_COLUMNS`, and what the
    command line or a sweep sets. TensorBoard takes the columns from one of the runs.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer, module = writer_of(trainer), language_model_of(pl_module)
        if writer is None or trainer.global_step:  # a run that resumes has them already
            return
        settings = flat_settings(module.config)
        for other in trainer.loggers[1:]:
            other.log_hyperparams(settings)
        metrics = map(tag_of, [*_METRICS, *(f"val/{figure.name}" for figure in module.data.figures)])
        del settings["seed"]  # a row of the tab is a group of runs, which differ in nothing else
        given = given_settings(module.config.overrides or ())
        columns = {name: value for name, value in settings.items() if name in _COLUMNS or name in given}
        experiment, *_ = hparams(columns, dict.fromkeys(metrics, 0.0))
        _, start, _ = hparams(settings, {})
        digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()
        with _plugin_data(start) as data:
            data.session_start_info.group_name = f"{module.config.pos_name} {digest[:8]}"
        folder = Path(writer.log_dir).name  # which a sweep names after the settings that vary
        with _plugin_data(experiment) as data:
            for info in data.experiment.hparam_infos:  # those that differ come first, the others in alphabetical order
                info.differs = info.name == "pos" or f"-{info.name.rpartition('.')[2]}_" in folder
        writer.file_writer.add_summary(experiment)
        writer.file_writer.add_summary(start)


@contextmanager
def _plugin_data(summary: Any) -> Iterator[HParamsPluginData]:
    """Give the settings within one of TensorBoard's summaries, to be changed."""
    (content,) = summary.value
    data = HParamsPluginData.FromString(content.metadata.plugin_data.content)
    yield data
    content.metadata.plugin_data.content = data.SerializeToString()


class SampleText(Callback):
    """Callback that lets the model write at every validation."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer, module = writer_of(trainer), language_model_of(pl_module)
        if writer is None or not module.config.sample.new_tokens:
            return
        if not math.isfinite(module.state.last_val_loss):  # such a model writes nothing
            return
        line, page = module.data.sample(module.model)
        module.state.sample = line = visible(_with_signs(line, everywhere=True))
        module.print("       " + textwrap.shorten(line, width() - 8, placeholder=" ..."))
        writer.add_text("sample", visible(_with_signs(page)), trainer.global_step)


_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}


def _with_signs(text: str, everywhere: bool = False) -> str:
    """Return a text with signs for the line ends, tabs and spaces that it ends with, "␣×31", because screens and
    Markdown show none, and a model may have written nothing else. everywhere: in a line of the screen, of all but
    single spaces."""

    def sign(run: re.Match[str]) -> str:
        sign, count = _SIGNS[run[1]], len(run[0])
        return sign * count if count < 4 else f"{sign}×{count}"

    blanks = r"[ \n\t]{2,}|[\n\t]|[ \n\t]+$" if everywhere else r"[ \n\t]+$"
    return re.sub(blanks, lambda blank: re.sub(r"(\s)\1*", sign, blank[0]), text)


class Pictures(Callback):
    """Callback that draws what the scheme has learned and where the model looks in the samples' prompt.

    At the first validation, at those whose step is at least twice that of the picture before, and at the last: a
    picture takes as long as fifty steps of a small model, which learns ever more slowly. `sample.pictures=last`: there
    alone.
    """

    def __init__(self) -> None:
        self.drawn = 0  # the step of the last pictures, and that of the last validation
        self.validated = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validated = trainer.global_step
        if self.validated >= 2 * self.drawn and language_model_of(pl_module).config.sample.pictures == "doubling":
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
        writer, module = writer_of(trainer), language_model_of(pl_module)
        if writer is None:
            return
        model, data, step = module.model, module.data, trainer.global_step
        for name, picture in model.position.pictures().items():
            writer.add_figure(f"val_pictures/{name}", draw(picture, caption=True), step)
        count = min(LEGIBLE, model.shape.context_length)
        words = data.prompt[:count]
        positions = None if data.positions is None else data.positions[:count]
        maps = attention_maps(model, torch.tensor(words), positions)
        name, texts = module.config.pos_name, [data.vocabulary.decode([word]) for word in words]
        writer.add_figure("val_pictures/attention", attention_figure({name: maps}, texts), step)
