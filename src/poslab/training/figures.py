"""Callbacks that log figures beside a validation's: of training steps, and of probes."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from poslab.evaluation.probes import probe
from poslab.training.module import language_model_of


class TrainingFigures(Callback):
    """Callback that counts what a run has trained on, and logs every `log_every_n_steps` steps.

    It writes to the loggers itself, ahead of a checkpoint at the same step: Lightning does so after that, so a run that
    goes on from there would lack these figures.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        # Of the step that this batch ends, if it does: the schedule is advanced before its end.
        self._rates: dict[str, float] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        language_model_of(pl_module).state.training_clock.start()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        rates = {group.get("name"): group["lr"] for group in optimizer.param_groups}
        scheme_rate = rates.pop("scheme", None)
        self._rates = {"learning_rate": next(iter(rates.values()))}
        if scheme_rate not in (None, self._rates["learning_rate"]):
            self._rates["position_learning_rate"] = scheme_rate

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        module = language_model_of(pl_module)
        state, step = module.state, trainer.global_step
        state.tokens += module.data.tokens_of_all(batch)
        assert module.loss is not None
        state.batch_losses.append(module.loss)
        rates, self._rates = self._rates, {}
        every = min(self._every, module.steps_per_epoch)  # which a callback may change by the epoch
        if not rates or (step % every and not trainer.should_stop):
            return
        figures = {"loss": module.loss, "gradient_norm": module.gradient_norm, **rates}
        figures["tokens_per_s"] = state.tokens_per_s
        plain = {f"train/{name}": float(figure) for name, figure in figures.items() if figure is not None}
        for logger in trainer.loggers:
            logger.log_metrics(plain, step - 1)  # as Lightning counts: the first step is 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _stop_training_clock(pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _stop_training_clock(pl_module)


def _stop_training_clock(pl_module: LightningModule) -> None:
    if pl_module.device.type == "cuda":  # which may still be computing
        torch.cuda.synchronize(pl_module.device)
    language_model_of(pl_module).state.training_clock.stop()


class ProbeFigures(Callback):
    """Callback that probes at every validation what heads do, and what hidden states tell of position."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = language_model_of(pl_module)
        if (probes := probe(module.model, module.data.texts())) is not None:
            scalars = {f"val_{name}": figure for name, figure in probes.scalars().items()}
            pl_module.log_dict(scalars, sync_dist=True)
