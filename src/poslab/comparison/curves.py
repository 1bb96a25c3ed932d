"""Loss curves, read back from a run's TensorBoard events, and whether they are those of its figures."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.comparison.groups import Group
from poslab.runs.consistency import close
from poslab.runs.load import LeftOut, Run
from poslab.tasks.metric import LOSS

Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """(step, loss) pairs of one run; empty where nothing was logged."""

    train: Points
    validation: Points


def read_curve(folder: Path) -> Curve:
    """Reads the events in the folder: damaged files as far as they go, and none in a folder whose name is no text."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "tensors": 1})
    with contextlib.suppress(OSError, DecodeError, UnicodeError):
        events.Reload()
    known = set(events.Tags()["scalars"])

    def points(tag: str) -> Points:
        return [(event.step, event.value) for event in events.Scalars(tag)] if tag in known else []

    return Curve(points("train/loss"), points("val/loss"))


def with_curves(runs: Sequence[Run]) -> tuple[list[Run], dict[Path, Curve], list[LeftOut]]:
    """(the runs, and their curves by folder; without those whose curve is not that of their figures, and these)."""
    curves = {run.folder: read_curve(run.folder) for run in runs}
    found = {run.folder: "" if run.diverged else contradiction(run, curves[run.folder]) for run in runs}
    left_out = [LeftOut(folder, f"contradicts itself: {problem}") for folder, problem in found.items() if problem]
    return [run for run in runs if not found[run.folder]], curves, left_out


def contradiction(run: Run, curve: Curve) -> str:
    """How the validations that were logged contradict the summary; empty where they don't. A curve may lack points."""
    summary = run.summary
    losses = {step + 1: loss for step, loss in curve.validation}  # events are numbered from 0
    if max(losses, default=0) > summary.steps:
        return f"its curve goes on to step {max(losses)}, summary.json ends at step {summary.steps}"
    end = summary.last_val_step or summary.steps
    for name, step in (("last", end), ("best", summary.best_step)):
        loss = getattr(summary, f"{name}_val_loss")
        if loss is not None and step in losses and not close(losses[step], loss):
            return f"summary.json says {name}_val_loss={loss:g}, its curve {losses[step]:g} at step {step}"
    lowest, best = min(filter(math.isfinite, losses.values()), default=math.inf), summary.best_val_loss
    if best is not None and end in losses and run.config.get("monitor", LOSS) == LOSS and not close(lowest, best):
        return f"summary.json says best_val_loss={best:g}, the lowest of its curve is {lowest:g}"
    return ""


def by_group(groups: Sequence[Group], curves: Mapping[Path, Curve]) -> dict[str, dict[int, Curve]]:
    """The curves of all runs, by the label of the group and the seed."""
    return {group.label: {run.seed: curves[run.folder] for run in group.runs} for group in groups}
