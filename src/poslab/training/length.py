"""Length of a run: what may end it, and what did."""

import math
from collections.abc import Mapping
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Timer

from poslab.config.train import TrainConfig
from poslab.training.state import RunState

_UNKNOWN = 10**9  # steps of a run that only time ends, before the first: its learning rate begins as low as can be


def steps_by_limit(trainer: Trainer, config: TrainConfig) -> dict[str, int]:
    """Return after how many optimizer steps each setting that limits them ends the run, the first one first."""
    settings, steps = config.trainer, dict[str, int]()
    if settings.max_epochs is not None:
        steps[f"trainer.max_epochs={settings.max_epochs}"] = int(trainer.estimated_stepping_batches)
    if settings.max_steps != -1:
        steps[f"trainer.max_steps={settings.max_steps}"] = settings.max_steps
    return dict(sorted(steps.items(), key=lambda limit: limit[1]))


def steps_by_pace(trainer: Trainer, timed_from: int) -> int:
    """Estimate how many optimizer steps a run has that only `max_time` ends, by the pace so far.

    timed_from: the step from which on its time counts.
    """
    seconds_left = time_left(trainer)
    elapsed, timed_steps = time_elapsed(trainer), trainer.global_step - timed_from
    steps: float = _UNKNOWN
    if timed_steps > 0 and elapsed > 0 and math.isfinite(seconds_left):
        steps = trainer.global_step + timed_steps * max(0.0, seconds_left) / elapsed
    # Processes that differed in their learning rates would train different models.
    return int(trainer.strategy.broadcast(max(trainer.global_step + 1, round(steps))))


def time_left(trainer: Trainer) -> float:
    """Return the seconds that `max_time` leaves; infinitely many where there is none."""
    remaining = [timer.time_remaining() for timer in _timers(trainer)]
    return min((seconds for seconds in remaining if seconds is not None), default=math.inf)


def time_elapsed(trainer: Trainer) -> float:
    """Return the seconds of `max_time` that are over, in earlier parts of the run included; 0 where there is none."""
    return float(sum(timer.time_elapsed() for timer in _timers(trainer)[:1]))


def _timers(trainer: Trainer) -> list[Any]:
    return [callback for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]


def _earlier_ends(config: TrainConfig) -> list[str]:
    """Return the settings that may end a run before its steps are over."""
    settings = config.settings
    ends = {
        "trainer.max_time": config.trainer.max_time,
        "early_stopping_patience": settings.early_stopping_patience,
        "target_loss": settings.target_loss,
    }
    return [f"{name}={value}" for name, value in ends.items() if value is not None]


def planned_end(limits: dict[str, int], config: TrainConfig) -> str:
    """Say how many steps the run has and, where several settings may end it, which one does.

    limits: of `steps_by_limit`.
    """
    earlier = _earlier_ends(config)
    if not limits:
        return f"as many as {' or '.join(earlier)} takes; the learning rate follows the time"
    (first, steps), *later = limits.items()
    words = f"{steps:,}"
    if later or earlier:
        words += f"; {first} ends the run"
    if later:
        words += f" before {later[0][0]}"
    if earlier:
        words += f", unless {' or '.join(earlier)} does so earlier"
    return words


def actual_end(limits: dict[str, int], config: TrainConfig, trainer: Trainer, state: RunState) -> str:
    """Return the setting that has ended the run; empty where no other could."""
    if len(limits) + len(_earlier_ends(config)) < 2:
        return ""
    target, patience = config.settings.target_loss, config.settings.early_stopping_patience
    if target is not None and state.batch_loss < target:
        return f"target_loss={target:g}"
    reached = [limit for limit, steps in limits.items() if trainer.global_step >= steps]
    if reached:
        return reached[0]
    if patience is not None and any(has_stopped(vars(stopping)) for stopping in trainer.early_stopping_callbacks):
        return f"early_stopping_patience={patience}"
    if time_left(trainer) <= 0:
        return f"trainer.max_time={config.trainer.max_time}"
    return "one of its callbacks"


def has_stopped(early_stopping: Mapping[str, Any]) -> bool:
    """Return whether an EarlyStopping, given by its state, has ended a run."""
    return bool(early_stopping["wait_count"] >= max(1, early_stopping["patience"]))
