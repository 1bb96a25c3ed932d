"""Lightning module of a run: the loss of the data on the model, validation, and the optimizer."""

import math
from functools import cached_property
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from poslab.config.train import TrainConfig
from poslab.metric import EXACT, LOSS, SOLVED
from poslab.model.decoder import GPT
from poslab.runs.checkpoint_files import describe
from poslab.runs.code import continued, fingerprints, model_fingerprint
from poslab.training.data import DataModule
from poslab.training.length import steps_by_limit, steps_by_pace, time_elapsed, time_left
from poslab.training.optimizer import clip_gradients, make_optimizer, make_schedule, with_schedule
from poslab.training.state import RunState

IMPROVEMENTS = "improvements"  # what early stopping watches


class LanguageModel(LightningModule):
    """Training of a GPT on data that say what its output is worth."""

    def __init__(self, model: GPT, config: TrainConfig, data: DataModule) -> None:
        super().__init__()
        self.model = model
        model.position.seed = config.settings.seed
        self.config = config
        self.data = data
        self._model_source = {"model_fingerprint": model_fingerprint(config.plain["model"])}
        self.fingerprints = fingerprints(config.pos) | self._model_source
        self.state = RunState()
        self.figures: dict[str, float] = {}  # of the last validation, beside its loss
        self._sums = torch.zeros(data.number_of_sums, dtype=torch.float64)  # of the validation under way
        # Of the last batch and step; tensors, because reading them waits for the device.
        self.loss: Tensor | None = None
        self.gradient_norm: Tensor | None = None  # before clipping
        self._trained: list[nn.Parameter] = []  # all parameters: to find them takes as long as to clip a small model's

    def on_fit_start(self) -> None:
        limited = math.isfinite(time_left(self.trainer))
        if limited and not time_elapsed(self.trainer):  # a time limit that the run had not before counts from here
            self.state.timed_from = self.state.step

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        loss = self.data.loss(self.model, batch)
        self.loss = loss.detach()
        return loss * self._weight_in_step(batch_index)

    def _weight_in_step(self, batch_index: int) -> float:
        """Return the factor by which a step's gradient is the mean over its windows.

        Lightning divides each batch's mean by `accumulate_grad_batches`, but the last step of an epoch may have fewer
        batches, and the last batch fewer windows.
        """
        each = self.trainer.accumulate_grad_batches
        first = batch_index - batch_index % each
        batches = range(first, min(first + each, int(self.trainer.num_training_batches)))
        return each * self.data.windows_in(batch_index) / sum(map(self.data.windows_in, batches))

    def on_validation_epoch_start(self) -> None:
        self._sums.zero_()

    def validation_step(self, batch: Any, batch_index: int) -> None:
        if not self.data.judges_none:
            self._sums += self.data.validation_sums(self.model, batch)

    def on_validation_epoch_end(self) -> None:
        meeting = self.device if self.device.type == "cuda" else "cpu"  # where processes can add up 64 bits
        sums = self.trainer.strategy.reduce(self._sums.to(meeting), reduce_op="sum").cpu()
        self.figures = self.data.validation_figures(sums)
        loss, state = self.figures.pop(LOSS), self.state
        state.note_validation(self.global_step, loss, self.data.monitored(self.figures), int(sums[1]))
        if state.solved_step is None and self.figures.get(EXACT.name, 0.0) >= SOLVED:
            state.solved_step = self.global_step
        # Equal in all processes; sync_dist only keeps Lightning from advising it.
        self.log_dict({f"val/{name}": figure for name, figure in self.figures.items()}, sync_dist=True)
        self.log_dict({"val/loss": loss, "val/best_loss": state.best_val_loss}, sync_dist=True)
        self.log(IMPROVEMENTS, state.improvements, sync_dist=True, logger=False)

    def configure_optimizers(self) -> Any:
        self._trained = list(self.parameters())
        optimizer = self.make_optimizer()
        schedule = with_schedule(optimizer, make_schedule(self.config.schedule), self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Make the optimizer. Raises SettingError where its class refuses its settings."""
        # A fused step can't be combined with the loss scaling that 16-bit floats need.
        fused = self.config.trainer.precision != "16-mixed"
        return make_optimizer(self.model, self.config.optim, self.config.optimizer, fused)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.trainer.num_training_batches / self.trainer.accumulate_grad_batches)

    @cached_property
    def steps_by_limit(self) -> dict[str, int]:
        """After how many optimizer steps each setting that limits them ends the run."""
        return steps_by_limit(self.trainer, self.config)

    def total_steps(self) -> int:
        """Return how many optimizer steps the run has, if nothing stops it early; where only time ends it, an
        estimate."""
        if self.steps_by_limit:
            return min(self.steps_by_limit.values())
        return steps_by_pace(self.trainer, self.state.timed_from)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Clipping computes the norm that is logged, so it is not left to Lightning; FSDP knows the norm of all shards.
        limit = gradient_clip_val or math.inf
        clip_sharded = getattr(self.trainer.strategy.model, "clip_grad_norm_", None)
        self.gradient_norm = clip_sharded(limit) if clip_sharded else clip_gradients(self._trained, limit)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        about = describe(self.config, self.data.vocabulary, self.data.sha256)
        checkpoint["poslab"] = about | {"step": self.global_step} | self.fingerprints
        checkpoint["state"] = self.state.plain()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.fingerprints = continued(checkpoint["poslab"], self.config.pos) | self._model_source
        self.state = RunState.from_checkpoint(checkpoint)


def language_model_of(module: LightningModule) -> LanguageModel:
    """Narrow the module that Lightning gives to callbacks to the run's own."""
    assert isinstance(module, LanguageModel)
    return module
