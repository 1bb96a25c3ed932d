"""Loss curves, read back from a run's TensorBoard events."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

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
