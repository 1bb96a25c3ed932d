"""Private parts of Lightning, as in pytorch-lightning 2.6.6: the counters of its loops (loops/progress.py,
loops/training_epoch_loop.py, loops/fit_loop.py) and connectors of its trainer.

Lightning saves the counters as they stand. Between two batches and within a validation they stand where its loops can't
resume, so they are set back to the last point where they can.
"""

from typing import Any

from pytorch_lightning import Trainer

_BATCHES, _VALIDATION = "epoch_loop.batch_progress", "epoch_loop.val_loop.batch_progress"
_COUNTS = ("ready", "started", "processed", "completed")


def batches_of_this_epoch(trainer: Trainer) -> int:
    """Return the training batches done in this epoch."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.current.completed)


def is_between_steps(trainer: Trainer) -> bool:
    """Return False while gradients of batches are kept for a step with later ones, of which no checkpoint knows."""
    done = batches_of_this_epoch(trainer)
    return done % trainer.accumulate_grad_batches == 0 or done >= trainer.num_training_batches


def batches_of_all_epochs(trainer: Trainer) -> int:
    """Return the training batches done since the beginning."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.total.completed)


def writes_figures(trainer: Trainer) -> bool:
    """Return whether the figures of this batch go to the logger once its hooks have run: each `log_every_n_steps`, and
    at the last step of a run that ends early."""
    return bool(trainer._logger_connector.should_update_logs)


def set_back_to_last_batch(checkpoint: dict[str, Any]) -> None:
    """Uncount the next batch, which Lightning has counted as ready."""
    saved = checkpoint["loops"]["fit_loop"]
    completed = {part: saved[_BATCHES][part]["completed"] for part in ("total", "current")}
    saved[_BATCHES] = {part: dict.fromkeys(_COUNTS, n) for part, n in completed.items()}
    saved[_BATCHES]["is_last_batch"] = False


def set_back_to_start_of_validation(checkpoint: dict[str, Any]) -> None:
    """Set the counters to those after the first batch of the validation was begun."""
    begun = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
    checkpoint["loops"]["fit_loop"][_VALIDATION] = {"total": begun, "current": begun, "is_last_batch": False}


def is_past_last_batch(checkpoint: dict[str, Any], batches: int) -> bool:
    """Return whether the epoch's last batch is done: the epoch still counts as under way after its validation.

    batches: of this epoch that are done.
    """
    return batches > 0 and bool(checkpoint["loops"]["fit_loop"][_BATCHES]["is_last_batch"])


def follow_the_schedule(trainer: Trainer) -> None:
    """Set the learning rate that the schedule has for the next step; another one than was saved if the run is
    extended."""
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        for group, base, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(scheduler.last_epoch)


def leave_signals_alone(trainer: Trainer) -> None:
    """Keep Lightning from handling signals: it would answer SIGTERM with a broadcast that no other process expects."""
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
