"""Loss curves, read back from a run's TensorBoard events."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.comparison.groups import Group

Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """Loss curve of one run as (step, loss) pairs; empty where nothing was logged."""

    train: Points
    validation: Points


def read_curve(folder: Path) -> Curve:
    """Return the curve from the events in the folder: damaged files as far as they can be read."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "tensors": 1})
    with contextlib.suppress(OSError, DecodeError, UnicodeError):
        events.Reload()
    known = set(events.Tags()["scalars"])

    def points(tag: str) -> Points:
        return [(event.step, event.value) for event in events.Scalars(tag)] if tag in known else []

    return Curve(points("train/loss"), points("val/loss"))


def by_group(groups: Sequence[Group], curves: Mapping[Path, Curve]) -> dict[str, dict[int, Curve]]:
    """Return the curves of all runs, by the label of the group and the seed."""
    return {group.label: {run.seed: curves[run.folder] for run in group.runs} for group in groups}
