"""Schedules of the learning rate: functions of the step and of the number of steps, a factor on the peak rate.

One's own is a class whose instances are called likewise, or a function that takes its settings after these two.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from poslab.checked import Checked, Limits
from poslab.config.fields import Share


@dataclass(frozen=True, kw_only=True)
class Schedule(Checked):
    """Linear warm-up over a share of all steps; what comes after it is `after_warmup`."""

    warmup_share: Share = 0.1

    def __call__(self, step: int, total_steps: int) -> float:
        """Return the factor of a step, counted from 0."""
        warmup = max(1, round(self.warmup_share * total_steps))
        if step < warmup:
            return (step + 1) / warmup
        return self.after_warmup(min(1.0, (step - warmup) / max(1, total_steps - warmup)))

    def after_warmup(self, progress: float) -> float:
        """Return the factor where this share, 0 to 1, of the steps after the warm-up is over."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The peak until the end."""

    def after_warmup(self, progress: float) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine down to a share of the peak."""

    final_share: Annotated[float, Limits(ge=0, le=1)] = 0.1

    def after_warmup(self, progress: float) -> float:
        return self.final_share + (1 - self.final_share) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule):
    """A line down to a share of the peak."""

    final_share: Annotated[float, Limits(ge=0, le=1)] = 0.0

    def after_warmup(self, progress: float) -> float:
        return self.final_share + (1 - self.final_share) * (1 - progress)


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Linear):
    """The peak, then a line down in the last share of the steps after the warm-up (MiniCPM, Hu et al. 2024)."""

    decay_share: Annotated[float, Limits(gt=0, le=1)] = 0.2

    def after_warmup(self, progress: float) -> float:
        return super().after_warmup(max(0.0, 1 - (1 - progress) / self.decay_share))
