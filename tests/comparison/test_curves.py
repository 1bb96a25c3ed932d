"""Loss curves from TensorBoard's files, whole or damaged."""

from pathlib import Path
from typing import Any

import pytest
from runs_to_compare import write_curve
from scipy import stats
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from poslab.comparison.curves import Curve, read_curve, write_means


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 4000, "folder", "undecodable"])
def test_events_that_hold_nothing(content: Any, tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.here.1.0"
    if content == "folder":
        file.mkdir()
    elif content == "undecodable":
        from tensorboard.summary.writer.record_writer import RecordWriter

        with file.open("wb") as opened:
            RecordWriter(opened).write(b"\xff\xff nonsense")
    elif content is not None:
        file.write_bytes(content)
    assert read_curve(tmp_path) == Curve([], [])


def test_truncated_events_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    write_curve(tmp_path, dict.fromkeys(range(50), 4.0))
    (file,) = tmp_path.glob("events*")
    assert len(read_curve(tmp_path).validation) == 50
    file.write_bytes(file.read_bytes()[:-200])
    assert 20 < len(read_curve(tmp_path).validation) < 50


def test_means_over_seeds_are_events_of_their_own(tmp_path: Path) -> None:
    """With the interval, at the steps that all seeds have; those of an earlier comparison go, and nothing else."""
    curves = {
        "t5 a=1": {
            seed: Curve([], [(1, 5.0 + seed), (2, 4.0 + seed), (3, 4.0)][:last]) for seed, last in ((1, 3), (2, 2))
        },
        "alone": {1: Curve([], [(1, 5.0)])},
    }
    (tmp_path / "gone").mkdir()
    for name in ("events.out.tfevents.1.host.1.0.means", "events.out.tfevents.1.host.1.0"):
        (tmp_path / "gone" / name).touch()
    write_means(tmp_path, curves)
    assert [file.name for file in (tmp_path / "gone").iterdir()] == ["events.out.tfevents.1.host.1.0"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["gone", "t5_a_1"]
    events = EventAccumulator(str(tmp_path / "t5_a_1"))
    events.Reload()
    scalars = {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}
    half = stats.t.ppf(0.975, 1) * 0.5
    means = [(1, 6.5), (2, 5.5)]
    assert scalars == {
        "eval/loss": means,  # where the runs have theirs
        "val_over_seeds/mean": means,
        "val_over_seeds/lower end": [(step, pytest.approx(mean - half)) for step, mean in means],
        "val_over_seeds/upper end": [(step, pytest.approx(mean + half)) for step, mean in means],
    }


def test_a_run_from_before_has_its_curve(tmp_path: Path) -> None:
    """And if it was resumed since, both parts of it: its validation had another tag then."""
    with SummaryWriter(str(tmp_path)) as writer:
        for tag, step, loss in (("val/loss", 1, 5.0), ("val/loss", 2, 4.0), ("eval/loss", 3, 3.0)):
            writer.add_scalar(tag, loss, step)
    assert list(read_curve(tmp_path).validation) == [(1, 5.0), (2, 4.0), (3, 3.0)]
