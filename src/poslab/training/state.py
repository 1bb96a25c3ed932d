"""Run state: the figures that a checkpoint holds beside Lightning's own (weights, optimizer, schedule, loops)."""

import math
import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from poslab.config.files import write_whole
from poslab.runs.folder import RunFolder


class Stopwatch:
    """Stopwatch that sums the seconds between `start` and `stop`, from `seconds` on."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._stopped_at = seconds
        self._started: float | None = None

    @property
    def seconds(self) -> float:
        return self._stopped_at + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def start(self) -> None:
        """Start it, unless it is running."""
        self._started = time.perf_counter() if self._started is None else self._started

    def stop(self) -> None:
        self._stopped_at, self._started = self.seconds, None


@dataclass
class RunState:
    """Progress and figures of a training, saved as one dict of plain values. Losses in nats per token."""

    step: int = 0
    epochs: int = 0  # that are over
    processes: int = 1
    tokens: int = 0  # trained on
    best_val_loss: float = math.inf  # of the validation that is best by `monitor`
    best_monitored: float = 0.0  # value of `monitor` there, lower is better; 0 where that is the loss
    improvements: int = 0  # validations that were the best so far
    best_step: int = 0
    last_val_loss: float = math.nan
    validations: dict[str, float] = field(default_factory=dict)  # the loss of each, by its step
    val_loss_tokens: int | None = None  # predictions that the best loss is a mean over
    solved_step: int | None = None  # of the first validation that solved the task's range
    batch_loss: float = math.inf  # of the last batch; kept up only where the training ends at a loss
    batch_losses: list[Tensor | float] = field(default_factory=list)  # since the last validation
    sample: str = ""  # what the model wrote at the last validation
    clock: Stopwatch = field(default_factory=Stopwatch)  # time of the whole run
    training_clock: Stopwatch = field(default_factory=Stopwatch)  # without validations
    timed_from: int = 0  # step from which on `max_time` counts
    threads: int | None = None  # None: none so far. With another number of them, sums are rounded otherwise
    random: dict[str, Any] = field(default_factory=dict)  # of rank zero's generators
    events: dict[str, int] = field(default_factory=dict)  # bytes of TensorBoard's files, by name
    csv_rows: dict[str, int] | None = None  # of logger=csv, by the file's path in the run's folder; None: not known

    @property
    def tokens_per_s(self) -> float:
        """Tokens trained per second, the mean over the run so far without validations."""
        return self.tokens / self.training_clock.seconds if self.training_clock.seconds else 0.0

    @property
    def late_fall(self) -> float | None:
        """Fall of the validation loss in the last tenth of the steps, nats per token, interpolated between validations;
        None where it was not measured before that."""
        steps, losses = [int(step) for step in self.validations], list(self.validations.values())
        if len(steps) < 2 or steps[0] > 0.9 * steps[-1]:
            return None
        return float(np.interp(0.9 * steps[-1], steps, losses)) - losses[-1]

    def note_validation(self, step: int, loss: float, monitored: float, tokens: int) -> None:
        """Keep the figures of a validation; the best is the lowest of `monitored` and, of these, of the loss."""
        self.last_val_loss = self.validations[str(step)] = loss
        better = (monitored, loss) < (self.best_monitored, self.best_val_loss)
        if math.isfinite(loss) and (better or not self.best_step):
            self.best_monitored, self.best_val_loss, self.best_step = monitored, loss, step
            self.val_loss_tokens = tokens
            self.improvements += 1

    def plain(self) -> dict[str, Any]:
        """Return the state as values that a checkpoint may hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        seconds = {name: values[name].seconds for name in _CLOCKS}
        return values | seconds | {"batch_losses": [float(loss) for loss in self.batch_losses]}

    @classmethod
    def from_checkpoint(cls, content: dict[str, Any]) -> "RunState":
        """Read the state in a checkpoint's content."""
        state = content["state"]
        return cls(**state | {name: Stopwatch(state[name]) for name in _CLOCKS})


_CLOCKS = ("clock", "training_clock")


def note_logs(run: RunFolder, state: RunState) -> None:
    """Note in the state how much is logged so far."""
    state.events = {path.name: path.stat().st_size for path in run.events}
    state.csv_rows = {name: len(_lines(path)) - 1 for name, path in run.csv_files.items()}


def rewind_logs(run: RunFolder, state: RunState) -> None:
    """Cut off what was logged after the state was saved: it will be logged again."""
    for path in run.events:
        size = state.events.get(path.name)
        if size is None or path.is_symlink():
            path.unlink()
        elif path.stat().st_size > size:
            os.truncate(path, size)
    # Rows and not bytes, because Lightning writes a file anew when it gets another column.
    rows_by_file = state.csv_rows or {}
    for name, path in run.csv_files.items() if rows_by_file or not state.step else ():
        rows = rows_by_file.get(name)
        if rows is None or path.is_symlink():
            path.unlink()
        else:
            write_whole(path, b"".join(_lines(path)[: 1 + rows]))


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)
