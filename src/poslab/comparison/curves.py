"""Loss curves: read from the TensorBoard events of runs, and means over seeds written as events of their own."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import pandas as pd
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.config.files import safe_name
from poslab.metric import tag_of
from seedstats.statistics.intervals import estimate

Points = Sequence[tuple[float, float]]
_LOSS = tag_of("val/loss")


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
    tags = set(events.Tags()["scalars"])

    def points(tag: str) -> Points:
        return [(event.step, event.value) for event in events.Scalars(tag)] if tag in tags else []

    # Runs from before have the second tag, and those that were resumed since have both.
    validation = sorted([*points("val/loss"), *points(_LOSS)], key=itemgetter(0))
    return Curve(points("train/loss"), validation)


def over_seeds(by_seed: Mapping[int, Points]) -> pd.DataFrame:
    """Return losses by step (rows, in order) and seed (columns), at the steps that all seeds have; NaN where a loss is
    not finite."""
    if not by_seed:
        return pd.DataFrame()
    columns = {seed: pd.Series(dict(points), dtype=float) for seed, points in by_seed.items()}
    losses = pd.concat(columns, axis=1, join="inner")
    return losses.sort_index().replace([math.inf, -math.inf], math.nan)


_MEANS = ".means"  # ends the name of the event files, so that a new comparison can replace them
# Tags that only means have, because TensorBoard calls a run's own loss without its ends a chart with missing tags.
_TAGS = tuple(f"val_over_seeds/{name}" for name in ("mean", "lower end", "upper end"))


def write_means(folder: Path, curves: Mapping[str, Mapping[int, Curve]]) -> bool:
    """Write the mean validation loss over seeds and its 95 % interval for TensorBoard, each group to a folder of its
    own, and return whether there is any; they replace those of an earlier comparison. Groups of one seed have their
    run's curve, and no folder.

    curves: by the group's label and the seed. The custom scalars tab draws the interval as a band.
    """
    from torch.utils.tensorboard import SummaryWriter  # loads torch

    for earlier in folder.glob(f"*/events.out.tfevents.*{_MEANS}"):
        earlier.unlink()
    written = False
    for label, by_seed in curves.items():
        losses = over_seeds({seed: curve.validation for seed, curve in by_seed.items()}).dropna()
        if len(by_seed) < 2 or losses.empty:
            continue
        written = True
        with SummaryWriter(str(folder / safe_name(label)), filename_suffix=_MEANS) as writer:
            writer.add_custom_scalars({"over seeds": {_LOSS: ["Margin", list(_TAGS)]}})
            for step, step_losses in losses.iterrows():
                mean_loss = estimate(step_losses)
                low, high = mean_loss.interval or (mean_loss.mean, mean_loss.mean)
                writer.add_scalar(_LOSS, mean_loss.mean, step)  # beside the runs' own curves
                for name, value in zip(_TAGS, (mean_loss.mean, low, high), strict=True):
                    writer.add_scalar(name, value, step)
    return written
