"""Lightning module of a run: loss, figures of every step, and the optimiser with its schedule and clipping."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR

from poslab.config.schema import OptimConfig
from poslab.config.train import TrainConfig
from poslab.data.batch_shards import BatchShard
from poslab.data.stream import Segments
from poslab.distributed import of_all_processes, summed
from poslab.evaluation.probes import probe
from poslab.evaluation.scoring import Scoring
from poslab.metric import EXACT, LOSS, SOLVED
from poslab.model.decoder import GPT
from poslab.model.memory import Memory, MemoryGPT, RetrievedAttention
from poslab.runs.checkpoint_files import describe
from poslab.runs.code import continued, fingerprints
from poslab.tasks import Examples
from poslab.training.lightning_loops import writes_figures
from poslab.training.loss import language_model_loss, loss_in_segments
from poslab.training.state import RunState

IMPROVEMENTS = "improvements"  # what early stopping watches
Batch = tuple[Tensor, Tensor] | Segments | Examples | BatchShard


class LanguageModel(LightningModule):
    """Training of a GPT to predict the next token, or the answers of a task."""

    def __init__(self, model: GPT, config: TrainConfig, scoring: Scoring[Any]) -> None:
        super().__init__()
        self.model = model
        model.seed = config.settings.seed
        self.config = config
        self.scoring = scoring
        self.fingerprints = fingerprints(config.pos)
        self.state = RunState()
        self.memory: Memory | None = None  # of this process's rows of a stream, after the last step
        self.figures: dict[str, float] = {}  # of the last validation, beside its loss
        self._rows: dict[int, Any] = {}  # of the validation under way: windows of a text, examples of a task
        # Of the last batch and step; tensors, as reading them waits for the device.
        self.loss: Tensor | None = None  # the mean over the whole batch, whatever processes share it
        self.gradient_norm: Tensor | None = None  # before clipping
        self._learning_rates: dict[str, float] = {}
        self._trained: list[nn.Parameter] = []  # all there are; to find them takes as long as to clip a small model's

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        loss = self._loss(batch)
        if not isinstance(batch, BatchShard):
            self.loss = loss.detach()
            return loss
        loss = loss * batch.share
        self.loss = summed(loss.detach())
        return loss * self.trainer.world_size  # gradients are averaged over the processes

    def _loss(self, batch: Batch) -> Tensor:
        tokens, targets, *_ = batch
        self.model.first_text = batch.first_row if isinstance(batch, BatchShard) else 0
        read = batch.read if isinstance(batch, Segments | BatchShard) else None
        if read is not None and isinstance(self.model, MemoryGPT):
            memory = self.model.empty_memory(len(tokens)) if self.memory is None else self.memory
            loss, self.memory = loss_in_segments(self.model, tokens, targets, memory.restarted(read))
            return loss
        if isinstance(self.model, MemoryGPT):
            return loss_in_segments(self.model, tokens, targets)[0]
        positions = batch.positions if isinstance(batch, Examples | BatchShard) else None
        return language_model_loss(self.model, tokens, targets, positions)

    def on_train_batch_start(self, batch: Batch, batch_index: int) -> None:
        self.state.training_clock.start()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        self.state.tokens += batch.batch_tokens if isinstance(batch, BatchShard) else batch[0].numel()
        assert self.loss is not None
        self.state.batch_losses.append(self.loss)
        if writes_figures(self.trainer):  # only then: to log every step takes as long as a small model's forward pass
            figures = {"loss": self.loss, "gradient_norm": self.gradient_norm, **self._learning_rates}
            figures["tokens_per_s"] = self.state.tokens_per_s
            self.log_dict({f"train/{name}": figure for name, figure in figures.items() if figure is not None})

    def on_train_end(self) -> None:
        self._stop_training_clock()

    def on_validation_start(self) -> None:
        self._stop_training_clock()

    def _stop_training_clock(self) -> None:
        if self.device.type == "cuda":  # which may still be computing
            torch.cuda.synchronize(self.device)
        self.state.training_clock.stop()

    def on_validation_epoch_start(self) -> None:
        self._rows = {}

    def validation_step(self, batch: Any, batch_index: int) -> None:
        self._rows |= self.scoring.rows(self.model, batch)

    def on_validation_epoch_end(self) -> None:
        rows: dict[int, Any] = {}
        for device_rows in of_all_processes(self._rows):
            rows |= device_rows
        state = self.state
        self.figures = self.scoring.validation(rows)
        state.last_val_loss = self.figures.pop(LOSS)
        state.validations[str(self.global_step)] = state.last_val_loss
        monitored = self.scoring.monitored(self.figures)
        better = (monitored, state.last_val_loss) < (state.best_monitored, state.best_val_loss)
        if math.isfinite(state.last_val_loss) and (better or not state.best_step):
            state.best_monitored, state.best_val_loss = monitored, state.last_val_loss
            state.best_step = self.global_step
            state.val_loss_tokens = sum(row[1] for row in rows.values())
            state.improvements += 1
        if state.solved_step is None and self.figures.get(EXACT.name, 0.0) >= SOLVED:
            state.solved_step = self.global_step
        # Equal in all processes; sync_dist only keeps Lightning from advising it.
        self.log("val/loss", state.last_val_loss, sync_dist=True)
        self.log("val/best_loss", state.best_val_loss, sync_dist=True)
        self.log(IMPROVEMENTS, state.improvements, sync_dist=True, logger=False)
        for name, figure in self.figures.items():
            self.log(f"val/{name}", figure, sync_dist=True)
        if self.config.evaluation.probes and (probes := probe(self.model, self.scoring.texts())) is not None:
            self.log_dict(probes.scalars(), sync_dist=True)
        for part in self.model.modules():
            if isinstance(part, RetrievedAttention):
                for head, share in enumerate(_whole(part.shares).tolist()):
                    self.log(f"retrieval/gate_head_{head}", share, sync_dist=True)

    def on_train_epoch_start(self) -> None:
        # Lightning sets the epoch of samplers itself, but for those that it wraps for several devices.
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        data.order.set_epoch(self.current_epoch)

    def configure_optimizers(self) -> Any:
        self._trained = list(self.parameters())
        optim = self.config.optim
        # A fused step can't be combined with the loss scaling that 16-bit floats need.
        optimizer = make_optimizer(self.model, optim, fused=self.config.trainer.precision != "16-mixed")
        factor = partial(
            learning_rate_factor,
            total_steps=self.total_steps(),
            warmup_share=optim.warmup_share,
            final_share=optim.final_share,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def total_steps(self) -> int:
        """Return how many optimiser steps the run has, if nothing stops it early."""
        limit = self.config.trainer.max_steps
        steps = self.trainer.estimated_stepping_batches  # infinite without a number of epochs
        return int(steps if limit == -1 else min(steps, limit))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Clipping computes the norm that is logged, so it is not left to Lightning.
        self.gradient_norm = clip_gradients(self._trained, gradient_clip_val or math.inf)
        rate, *_, of_positions = (group["lr"] for group in optimizer.param_groups)
        self._learning_rates = {"learning_rate": rate}
        if len(optimizer.param_groups) > 2:
            self._learning_rates["position_learning_rate"] = of_positions

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        data = self.scoring.data
        about = describe(self.config, data.vocabulary, data.sha256)
        checkpoint["poslab"] = about | {"step": self.global_step} | self.fingerprints
        checkpoint["state"] = self.state.plain()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.fingerprints = continued(checkpoint["poslab"], self.config.pos)
        self.state = RunState.from_checkpoint(checkpoint)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def language_model_of(module: LightningModule) -> LanguageModel:
    """Narrow the module that Lightning gives to callbacks to the run's own."""
    assert isinstance(module, LanguageModel)
    return module


# Optimiser


def make_optimizer(model: GPT, config: OptimConfig, fused: bool) -> torch.optim.AdamW:
    """Make AdamW over the parameter groups."""
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(parameter_groups(model, config), lr=config.learning_rate, betas=betas, fused=fused)


def parameter_groups(model: GPT, config: OptimConfig) -> list[dict[str, Any]]:
    """Group the parameters by weight decay and learning rate.

    Matrices of the trunk decay. Biases, norms and all position tables don't: decay would pull what is known of position
    towards nothing, and harder for the schemes that express it in larger numbers. The tables are a third group where
    their learning rate is another one; else they are in the second.
    """
    tables = {id(p) for p in model.position_tables.parameters()}
    apart = tables if config.position_learning_rate_factor != 1 else set()
    decays = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in tables]
    others = [p for p in model.parameters() if (p.dim() < 2 or id(p) in tables) and id(p) not in apart]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if apart:
        rate = config.learning_rate * config.position_learning_rate_factor
        groups.append({"params": list(model.position_tables.parameters()), "weight_decay": 0.0, "lr": rate})
    return groups


def learning_rate_factor(step: int, total_steps: int, warmup_share: float, final_share: float) -> float:
    """Return the share of the peak: up in a line over the first steps, down in a cosine to the final share."""
    warmup = max(1, round(warmup_share * total_steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def clip_gradients(parameters: Sequence[Tensor], limit: float) -> Tensor:
    """Scale all gradients together down to a norm of `limit`, and return the norm that they had.

    Equal to the bit to torch's clip_grad_norm_, which multiplies by 1 where they are small enough: a pass over all.
    """
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    whole = _whole(norm)
    # A GPU would be waited for.
    if limit < math.inf and not (whole.device.type == "cpu" and whole + 1e-6 <= limit):
        clip_grads_with_norm_(parameters, limit, norm)
    return whole
