"""Loggers of a run: always TensorBoard, which reports read their curves from, and one more of Lightning's if `logger`
names one. All get the same keys."""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from poslab.config.files import write_whole
from poslab.config.schema import LoggerConfig
from poslab.distributed import is_first_process
from poslab.errors import SettingError, UserError
from poslab.runs.folder import RunFolder
from poslab.training.lightning_loops import without_anonymous

_PACKAGES = ("wandb", "mlflow")  # loggers that need one of their name, which is an extra of poslab


def check_logger(settings: LoggerConfig) -> None:
    """Raise SettingError where the logger's package is not installed."""
    if settings.name in _PACKAGES and find_spec(settings.name) is None:
        extra = f'pip install "poslab[{settings.name}]"'
        raise SettingError("logger", settings.name, f"needs a package that is not installed: {extra}")


def make_loggers(settings: LoggerConfig, folder: RunFolder) -> list[Logger]:
    """Make the loggers, TensorBoard's first. Raises UserError where the other one can't begin, such as for want of a
    server."""
    others: dict[str, Callable[[LoggerConfig, RunFolder], Logger]] = {"csv": _csv, "wandb": _wandb, "mlflow": _mlflow}
    tensorboard = TensorBoard(folder.path, name="", version="")
    return [tensorboard, *(make(settings, folder) for name, make in others.items() if name == settings.name)]


def writer_of(trainer: Trainer) -> Any:
    """Return TensorBoard's SummaryWriter, in the process that writes; None in others."""
    logger = trainer.logger
    return logger.experiment if isinstance(logger, TensorBoard) and trainer.is_global_zero else None


class TensorBoard(TensorBoardLogger):
    """TensorBoard's logger, straight into the run folder, without the hparams.yaml that Lightning would add."""

    def save(self) -> None:
        self.experiment.flush()


class Wandb(WandbLogger):
    """W&B's logger, which closes its run with the training: a job of a sweep ends without Python's exit functions."""

    def finalize(self, status: str) -> None:
        super().finalize(status)
        self.experiment.finish(exit_code=int(status != "success"))


def _csv(settings: LoggerConfig, folder: RunFolder) -> Logger:
    """Write csv/version_0/metrics.csv in the run's folder, and version_1 where the run resumes."""
    return CSVLogger(folder.path, name=folder.csv.name)


def _wandb(settings: LoggerConfig, folder: RunFolder) -> Logger:
    """Write wandb/ in the run's folder; a run that resumes has the id of before, which ends the names there."""
    import wandb

    before = sorted(folder.wandb.glob("*run-*-*"))
    logger = Wandb(
        name=folder.path.name,
        project=settings.project,
        offline=settings.offline,
        save_dir=folder.path,
        id=before[-1].name.rpartition("-")[2] if before else None,
        settings=wandb.Settings(silent=settings.offline, console="off"),  # the screen's text stays with the screen
    )
    without_anonymous(logger)
    try:
        _ = logger.experiment  # begins the run
    except wandb.Error as error:
        raise _refused(folder, f"logger=wandb: {error}") from error
    return logger


def _mlflow(settings: LoggerConfig, folder: RunFolder) -> Logger:
    """Write to `logger.uri`, or to the store that MLflow uses by itself; the id is kept for when the run resumes."""
    import mlflow

    for name in ("mlflow", "alembic", "pytorch_lightning.loggers.mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)  # tables created, an experiment not found and thus created
    uri = settings.uri or mlflow.get_tracking_uri()
    known = dict([folder.mlflow.read_text().split("\n")[:2]]) if folder.mlflow.exists() else {}
    try:
        logger = MLFlowLogger(settings.project, folder.path.name, uri, run_id=known.get(uri))
        if is_first_process():
            folder.mlflow.parent.mkdir(exist_ok=True)
            write_whole(folder.mlflow, f"{uri}\n{logger.run_id}\n")  # begins the run
    except mlflow.exceptions.MlflowException as error:
        raise _refused(folder, f"logger=mlflow: {uri}: {error}") from error
    return logger


def _refused(folder: RunFolder, problem: str) -> UserError:
    """Make the error; a run that has not begun leaves nothing in the way of the same command."""
    if not folder.resumable:
        folder.clear()
    return UserError(" ".join(problem.split()))
