"""A visit to a GPU goes on where it was interrupted."""

import json
import time
from pathlib import Path

import pytest

from benchmarks.visit import Results


def test_a_second_visit_measures_what_the_first_one_did_not(tmp_path: Path) -> None:
    def fails() -> dict[str, float]:
        raise RuntimeError("out of shared memory")

    first = Results(tmp_path / "visit")
    assert first.measure("fast", lambda: {"ms": 1.0})["ms"] == 1.0
    assert first.measure("broken", fails) is None
    second = Results(tmp_path / "visit")
    assert second.measure("fast", fails)["ms"] == 1.0
    assert second.measure("broken", lambda: {"ms": 2.0})["ms"] == 2.0
    lines = (tmp_path / "visit/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["fast", "broken"]


def test_a_measurement_has_a_limit_and_one_that_was_killed_is_left_out(tmp_path: Path) -> None:
    def hangs() -> dict[str, float]:
        time.sleep(30)
        return {}

    def is_killed() -> dict[str, float]:
        raise KeyboardInterrupt

    first = Results(tmp_path)
    assert first.measure("slow", hangs, limit=1) is None
    with pytest.raises(KeyboardInterrupt):
        first.measure("interrupted", is_killed)
    assert Results(tmp_path).measure("interrupted", lambda: {"ms": 3.0})["ms"] == 3.0  # by hand, which tidies up
    (tmp_path / "begun").write_text("hung")
    second = Results(tmp_path)
    assert second.measure("hung", lambda: {"ms": 1.0}) is None
    assert second.measure("slow", lambda: {"ms": 2.0})["ms"] == 2.0
    assert Results(tmp_path).measure("hung", lambda: {"ms": 1.0}) is None
