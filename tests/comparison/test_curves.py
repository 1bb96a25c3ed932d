"""Loss curves from TensorBoard's files, whole or damaged."""

from pathlib import Path
from typing import Any

import pytest
from runs_to_compare import write_curve

from poslab.comparison.curves import Curve, read_curve


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
