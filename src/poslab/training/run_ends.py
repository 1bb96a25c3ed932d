"""Ends of a run: after its steps, at the loss that it is to reach, and where a loss or gradient is not finite."""

import math
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from poslab.errors import Diverged, RunStopped
from poslab.training.module import language_model_of
from poslab.training.state import RunState


class Limits(Callback):
    """Callback that ends the training after `steps` optimiser steps, validated, or once there was one and a batch's
    loss is below `target`, in nats.

    steps: -1 for any number. (Lightning's own max_steps skips that validation.)
    """

    def __init__(self, steps: int, target: float | None) -> None:
        self.steps = steps
        self.target = target

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop |= 0 <= self.steps <= trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        if self.target is not None:
            module = language_model_of(pl_module)
            assert module.loss is not None
            module.state.batch_loss = float(module.loss)
            reached = trainer.global_step > 0 and module.state.batch_loss < self.target
            trainer.should_stop |= trainer.strategy.reduce_boolean_decision(reached)  # of all processes
        self.on_train_start(trainer, pl_module)


class FiniteLoss(Callback):
    """Callback that stops a run whose loss or gradient is infinite or no number, before that is saved.

    every: steps between two looks at a GPU's losses, each of which waits for it; on a CPU every step is looked at.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._unseen: list[tuple[int, Tensor]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        module = language_model_of(pl_module)
        assert module.loss is not None
        values = [module.loss.float().flatten()]
        # With 16-bit floats Lightning scales the loss, and leaves out steps whose gradient that makes infinite.
        if module.gradient_norm is not None and getattr(trainer.precision_plugin, "scaler", None) is None:
            values.append(module.gradient_norm.detach().float().flatten())
        self._unseen.append((trainer.global_step, torch.cat(values)))
        if pl_module.device.type == "cpu" or trainer.global_step % self.every == 0:
            self._look(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loss = language_model_of(pl_module).state.last_val_loss
        if not math.isfinite(loss):
            raise _stopped(pl_module, trainer.global_step, f"validation loss is {loss}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._look(pl_module)

    def _look(self, pl_module: LightningModule) -> None:
        unseen, self._unseen = self._unseen, []
        for step, values in unseen:
            for name, value in zip(("loss", "gradient's norm"), values.tolist(), strict=False):
                if not math.isfinite(value):
                    raise _stopped(pl_module, step, f"{name} is {value}")


def check_target(target: float | None, state: RunState) -> None:
    """Raise RunStopped where the training was to reach a loss, and didn't."""
    if target is not None and not state.batch_loss < target:
        problem = f"not reached in {state.step} steps; the last batch's loss was {state.batch_loss:.4f}"
        raise RunStopped(f"target_loss={target:g}: {problem}")


def _stopped(pl_module: LightningModule, step: int, what: str) -> Diverged:
    config, saved = language_model_of(pl_module).config, language_model_of(pl_module).state.step
    kept = f"the last good checkpoint is of step {saved}" if saved else "there is no checkpoint yet"
    advice = [f"a smaller optim.learning_rate than {config.optim.learning_rate:g}"]
    advice += ["trainer.gradient_clip_val=1.0"] if not config.trainer.gradient_clip_val else []
    advice += ["trainer.precision=32-true"] if not config.trainer.precision.startswith(("32", "64")) else []
    overfit = "; debug=overfit shows whether it can learn" if config.text_path else ""  # which is for texts
    tips = f"Try, in a new run, {', or '.join(advice)}{overfit}"
    return Diverged(f"step {step}: the {what}; {kept}. {tips}")
